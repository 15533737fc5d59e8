//! Reads the manifest that `CURRENT` names. Nothing here writes to the directory.

use super::manifest::{ManifestReader, manifest_name, parse_manifest_name, read_current};
use super::{Edit, ManifestState};
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use std::path::Path;

/// The content of a manifest.
pub struct LoadedManifest {
    /// The sum of the manifest's edits.
    pub state: ManifestState,
    /// Id of the manifest.
    pub manifest_id: u64,
    /// Length in bytes of a torn write at the end of the manifest; 0 if there is none.
    pub torn: u64,
    /// A reader positioned behind the last edit. A follower uses it to read the edits that the
    /// writer appends later.
    pub reader: ManifestReader,
}

/// Reads the manifest that `CURRENT` names. `None` if there is no `CURRENT`: the database is new,
/// or its creation was interrupted.
///
/// # Errors
/// `Corruption` if the manifest or `CURRENT` is damaged, or if `CURRENT` is missing although a
/// manifest has content. `Unsupported` for a later format. `Io`.
pub fn load(env: &dyn Env, dir: &Path) -> Result<Option<LoadedManifest>> {
    let Some(manifest_id) = read_current(env, dir)? else {
        return refuse_orphans(env, dir).map(|()| None);
    };
    let (state, reader) = read(env, dir, manifest_id)?;
    Ok(Some(LoadedManifest {
        state,
        manifest_id,
        torn: reader.unread(),
        reader,
    }))
}

/// As [`load`], but ignores `CURRENT` and reads the manifest with the highest id. That manifest is
/// in force, or a rotation was interrupted before it was put in force; then it has the same content
/// as the one in force.
///
/// # Errors
/// `Corruption` if the manifest is damaged or there is none. `Unsupported` for a later format.
/// `Io`.
pub fn load_newest_manifest(env: &dyn Env, dir: &Path) -> Result<LoadedManifest> {
    let Some(manifest_id) = manifest_ids(env, dir)?.into_iter().max() else {
        return Err(Error::corruption("MANIFEST", 0, "the file is missing"));
    };
    let (state, reader) = read(env, dir, manifest_id)?;
    Ok(LoadedManifest {
        state,
        manifest_id,
        torn: reader.unread(),
        reader,
    })
}

fn read(env: &dyn Env, dir: &Path, id: u64) -> Result<(ManifestState, ManifestReader)> {
    let mut reader = ManifestReader::open(env, dir, id).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corruption(manifest_name(id), 0, "the file is missing"),
        _ => error,
    })?;
    let edits = reader.poll(false)?;
    let mut state = ManifestState::default();
    if edits.is_empty() {
        // The first record is durable before `CURRENT` names the manifest. So a missing first
        // record is corruption, not a torn write.
        return Err(Error::corruption(
            reader.name(),
            0,
            "the first record is damaged",
        ));
    }
    for edit in &edits {
        apply(&mut state, edit, reader.name())?;
    }
    Ok((state, reader))
}

fn apply(state: &mut ManifestState, edit: &Edit, name: &str) -> Result<()> {
    if let Some(what) = state.check_edit(edit) {
        return Err(Error::corruption(name, 0, format!("an edit {what}")));
    }
    state.apply(edit);
    Ok(())
}

/// Called when there is no `CURRENT`. Only an interrupted creation leaves a manifest without
/// `CURRENT`, and such a manifest is unreadable or empty. Any manifest with content means that
/// `CURRENT` was lost: an error.
fn refuse_orphans(env: &dyn Env, dir: &Path) -> Result<()> {
    for id in manifest_ids(env, dir)? {
        let blank = match read(env, dir, id) {
            Err(e) if e.is_corruption() => true,
            Err(e) => return Err(e),
            Ok((state, _)) => {
                ManifestState {
                    next_file_id: ManifestState::default().next_file_id,
                    next_run_number: ManifestState::default().next_run_number,
                    identity: None,
                    ..state
                } == ManifestState::default()
            }
        };
        if !blank {
            let what = format!("missing, but manifest {id} has content");
            return Err(Error::corruption("CURRENT", 0, what));
        }
    }
    Ok(())
}

/// Ids of all manifests in `dir`, in force or not.
pub(super) fn manifest_ids(env: &dyn Env, dir: &Path) -> Result<Vec<u64>> {
    let names = env.list_dir(dir)?;
    Ok(names
        .iter()
        .filter_map(|n| parse_manifest_name(n))
        .collect())
}
