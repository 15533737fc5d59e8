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
    /// Whether its first edit is intact; it names every file that was live when the manifest began.
    pub begins: bool,
    /// Files that an edit has added and no later one has removed.
    pub added: BTreeSet<u64>,
    /// External seqnos of the files whose edits are intact.
    pub external: BTreeMap<u64, Seqno>,
    /// Files that an edit has removed for good.
    pub removed: BTreeSet<u64>,
    /// Log segments below this number are not needed.
    pub log_number: u64,
    /// Every commit up to this seqno is in the files.
    pub last_seqno: Seqno,
    /// Counters.
    pub counters: BTreeMap<u64, CounterValue>,
    /// The last global transaction ids.
    pub gtids: BTreeMap<u32, Gtid>,
}

/// Reads the intact edits of the newest manifest. Reports each loss to `lost`.
///
/// # Errors
/// Those of the file system; `Unsupported` for a newer format, and for files that do not lie in
/// `dir`.
pub fn salvage(env: &dyn Env, dir: &Path, lost: &mut dyn FnMut(Error)) -> Result<Salvaged> {
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

impl Salvaged {
    fn apply(&mut self, edit: &Edit) -> Result<()> {
        for (_, id) in &edit.removed {
            self.added.remove(id);
            self.removed.insert(*id);
        }
        for (.., meta) in &edit.added {
            // The directory would be taken for all there is.
            meta.check_local()?;
            // Perhaps only moved to another level.
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

    /// Whether an existing file may be live. A file that no intact edit names either was created
    /// after the manifest began, and the edit that added it is lost, or it is older than the
    /// manifest and a leftover.
    pub fn may_be_live(&self, id: u64) -> bool {
        let named = self.added.contains(&id);
        let leftover = self.begins && id < self.manifest_id;
        named || !(self.removed.contains(&id) || leftover)
    }
}
