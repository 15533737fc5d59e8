//! Reads the intact edits of a damaged manifest, for repair.

use super::Edit;
use super::load_manifest::manifest_ids;
use super::manifest::ManifestReader;
use crate::base::{CounterValue, Error, Result, Seqno};
use crate::env::Env;
use crate::wal::Gtid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The content of the intact edits of a damaged manifest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Id of the manifest.
    pub manifest_id: u64,
    /// Whether the manifest's first edit is intact. That edit names every file that was live when
    /// the manifest was created.
    pub begins: bool,
    /// Ids of files that an intact edit has added and no later intact edit has removed.
    pub added: BTreeSet<u64>,
    /// External seqnos by file id, of the files whose edits are intact.
    pub external: BTreeMap<u64, Seqno>,
    /// Ids of files that an intact edit has removed and no later intact edit has added again.
    pub removed: BTreeSet<u64>,
    /// No recovery needs log segments with numbers below this one.
    pub log_number: u64,
    /// All commits up to this seqno are in SSTs.
    pub last_seqno: Seqno,
    /// Persisted counters by counter id.
    pub counters: BTreeMap<u64, CounterValue>,
    /// The last global transaction id of each replication domain.
    pub gtids: BTreeMap<u32, Gtid>,
}

/// Reads the intact edits of the manifest with the highest id. Calls `lost` with an error for each
/// damaged part.
///
/// # Errors
/// Those of the file system; `Unsupported` for a newer format, and for files that do not lie in
/// `dir`.
pub fn salvage_manifest(
    env: &dyn Env,
    dir: &Path,
    lost: &mut dyn FnMut(Error),
) -> Result<Salvaged> {
    let mut salvaged = Salvaged::default();
    let Some(id) = manifest_ids(env, dir)?.into_iter().max() else {
        lost(Error::corruption("MANIFEST", 0, "the file is missing"));
        return Ok(salvaged);
    };
    salvaged.manifest_id = id;
    let (edits, begins) = ManifestReader::salvage(env, dir, id, lost)?;
    salvaged.begins = begins;
    edits.iter().try_for_each(|edit| salvaged.apply(edit))?;
    Ok(salvaged)
}

/// Ids of the files that the intact edits of the manifest `id` have removed from the tree. They may
/// still be in the directory, because they are deleted later.
///
/// # Errors
/// Those of the file system; `Unsupported` for a newer format. Damage is no error.
pub fn removed_files(env: &dyn Env, dir: &Path, id: u64) -> Result<BTreeSet<u64>> {
    let (edits, _) = ManifestReader::salvage(env, dir, id, &mut |_| {})?;
    let mut removed = BTreeSet::new();
    for edit in &edits {
        removed.extend(edit.removed.iter().map(|(_, id)| *id));
        // An edit that moves a file removes it and adds it again.
        for (.., meta) in &edit.added {
            removed.remove(&meta.file_id);
        }
    }
    Ok(removed)
}

impl Salvaged {
    fn apply(&mut self, edit: &Edit) -> Result<()> {
        for (_, id) in &edit.removed {
            self.added.remove(id);
            self.removed.insert(*id);
        }
        for (.., meta) in &edit.added {
            // Repair looks for SSTs only in the directory. A file in an object store would silently
            // be missing from the repaired tree, so refuse it.
            meta.check_local()?;
            // An edit that moves a file to another level removes it and adds it again.
            self.removed.remove(&meta.file_id);
            self.added.insert(meta.file_id);
            if let Some(seqno) = meta.external_seqno {
                self.external.insert(meta.file_id, seqno);
            }
        }
        self.log_number = self.log_number.max(edit.log_number.unwrap_or(0));
        self.last_seqno = self.last_seqno.max(edit.last_seqno.unwrap_or(0));
        for &(counter, value) in &edit.counters {
            let slot = self.counters.entry(counter).or_insert(value);
            *slot = value.max(*slot);
        }
        let gtids = edit.gtids.iter().map(|gtid| (gtid.domain, *gtid));
        self.gtids.extend(gtids);
        Ok(())
    }

    /// Whether an existing file may belong to the tree. If no intact edit names the file, there are
    /// two cases. A file with an id above the manifest's was created later, and the edit that added
    /// it may be lost: it may be live. A file with a lower id is older than the manifest; if the
    /// first edit is intact and does not name it, it is a leftover.
    pub fn may_be_live(&self, id: u64) -> bool {
        let named = self.added.contains(&id);
        let leftover = self.begins && id < self.manifest_id;
        named || !(self.removed.contains(&id) || leftover)
    }
}
