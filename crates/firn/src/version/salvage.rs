//! What a damaged manifest still says.

use super::Edit;
use super::load::manifest_ids;
use super::manifest::{ManifestReader, read_current};
use crate::base::{Error, Result, Seqno};
use crate::env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What is known of the tree, from the edits that are left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Files that an edit has removed for good. A file that is there and not among them is live, or
    /// its removal is lost.
    pub removed: BTreeSet<u64>,
    /// Log segments below this number are not needed.
    pub log_number: u64,
    /// Every commit up to this seqno is in the files.
    pub last_seqno: Seqno,
    /// Named maxima.
    pub counters: BTreeMap<u64, u64>,
}

/// Reads what is left of the manifest in force, or of the newest one if `CURRENT` is lost. Each loss
/// goes to `lost`.
///
/// # Errors
/// Those of the file system; `Unsupported` for a newer format.
pub fn salvage(env: &dyn Env, dir: &Path, lost: &mut dyn FnMut(Error)) -> Result<Salvaged> {
    let newest = manifest_ids(env, dir)?.into_iter().max();
    let id = match read_current(env, dir) {
        Ok(current) => current.or(newest),
        Err(error) if error.is_corruption() => {
            lost(error);
            newest
        }
        Err(error) => return Err(error),
    };
    let mut salvaged = Salvaged::default();
    let Some(id) = id else {
        lost(Error::corruption("MANIFEST", 0, "the file is missing"));
        return Ok(salvaged);
    };
    for edit in ManifestReader::salvage(env, dir, id, lost)? {
        salvaged.apply(&edit);
    }
    Ok(salvaged)
}

impl Salvaged {
    fn apply(&mut self, edit: &Edit) {
        self.removed.extend(edit.removed.iter().map(|(_, id)| *id));
        for (.., meta) in &edit.added {
            // Moved to another level.
            self.removed.remove(&meta.file_id);
        }
        self.log_number = self.log_number.max(edit.log_number.unwrap_or(0));
        self.last_seqno = self.last_seqno.max(edit.last_seqno.unwrap_or(0));
        for &(counter, value) in &edit.counters {
            let slot = self.counters.entry(counter).or_insert(value);
            *slot = value.max(*slot);
        }
    }
}
