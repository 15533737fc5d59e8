//! Reads the manifest in force. Changes nothing.

use super::manifest::{ManifestReader, manifest_name, parse_manifest_name, read_current};
use super::{Edit, ManifestState};
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use std::path::Path;

/// The content of a manifest.
pub struct LoadedManifest {
    /// The sum of its edits.
    pub state: ManifestState,
    /// Id of the manifest.
    pub manifest_id: u64,
    /// Bytes of a torn write at its end.
    pub torn: u64,
    /// Reader positioned behind the last edit, to follow the writer.
    pub reader: ManifestReader,
}

/// Reads the manifest in force. `None` if the directory has none: it is a new database, or its
/// creation was interrupted.
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

/// As [`load`], but reads the newest manifest and ignores `CURRENT`. The newest manifest is either
/// in force, or was about to be and has the same content.
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
        // The first record was durable before CURRENT named the file, so this is no torn write.
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

/// Without `CURRENT`, only an interrupted creation may have left a manifest: an unreadable one, or
/// one without content.
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

/// Ids of the manifests in `dir`.
pub(super) fn manifest_ids(env: &dyn Env, dir: &Path) -> Result<Vec<u64>> {
    let names = env.list_dir(dir)?;
    Ok(names
        .iter()
        .filter_map(|n| parse_manifest_name(n))
        .collect())
}
