//! The readable sources of a damaged database, and the losses among their entries.

use super::LOADED_SEQNO;
use super::surviving_tree::SurvivingTree;
use crate::base::{Error, ErrorKind, InternalIterator, Result, Seqno};
use crate::catalog::CatalogState;
use crate::db::read_only::ReadOnlyDb;
use crate::db::recovery::Replayed;
use crate::sst::{IndexStats, LostRange, Salvage, SalvageIter, SstReader};
use crate::store::{FileKind, file_name};
use crate::version::Flushable;
use crate::wal::LogStart;
use std::sync::Arc;

/// Losses that are reported only after the copy: the reports name tables and keys, for which they
/// need the catalog, and the catalog is read from the same files during the copy.
#[derive(Default)]
pub(super) struct UnnamedLosses {
    ranges: Vec<LostRange>,
    /// Missing files by name, each with the index statistics that the manifest has of it.
    files: Vec<(String, Vec<IndexStats>)>,
}

impl UnnamedLosses {
    /// Reports each loss to `lost`, with table and keys.
    pub(super) fn report(self, known: &CatalogState, lost: &mut dyn FnMut(Error)) {
        for (name, held) in self.files {
            let held: Vec<String> = held
                .iter()
                .map(|one| format!("{} entries of {}", one.entries, known.index_text(one.index)))
                .collect();
            let what = match held.is_empty() {
                true => "the file is missing".to_owned(),
                false => format!("the file is missing: {}", held.join(", ")),
            };
            lost(Error::corruption(name, 0, what));
        }
        for range in self.ranges {
            lost(range.named(|key| known.entry_text(key)));
        }
    }
}

/// Sources for everything that can be read, the newest first: the flushables of the log, then the
/// files. If two sources have an entry with the same user key and seqno, the merge takes the one of
/// the earlier source.
pub(super) fn sources(
    damaged_db: &ReadOnlyDb,
    tree: &SurvivingTree,
    log: &Replayed,
    unnamed: &mut UnnamedLosses,
    lost: &mut dyn FnMut(Error),
) -> Result<Vec<Box<dyn InternalIterator>>> {
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    let named = log.named_files();
    let from_anywhere = matches!(tree.log, LogStart::Unknown { .. });
    let there = damaged_db.source().store().list()?;
    for queued in log.queue.iter().rev() {
        match queued {
            Flushable::Memtable(memtable) => sources.push(Box::new(memtable.iter())),
            Flushable::Run(run) => {
                for file in &run.run().files {
                    // Skip missing files without reporting a loss: the start of the log is unknown,
                    // so this may be an old commit, whose files a compaction has replaced since.
                    if from_anywhere && !there.contains(&file.file_id) {
                        continue;
                    }
                    let source = salvaged(
                        damaged_db,
                        tree,
                        file.file_id,
                        Some(run.seqno()),
                        unnamed,
                        lost,
                    )?;
                    sources.extend(source.map(boxed));
                }
            }
        }
    }
    // Take the newest file first: entries of the last level have seqno 0, and of two such versions
    // of a key the one in the newer file is the newer version.
    let files = tree.files.iter().rev();
    for (id, external) in files.filter(|(id, _)| !named.contains(id)) {
        sources.extend(salvaged(damaged_db, tree, *id, *external, unnamed, lost)?.map(boxed));
    }
    Ok(sources)
}

fn boxed(source: SalvageIter) -> Box<dyn InternalIterator> {
    Box::new(source)
}

/// The readable part of a file; `None` if the file is missing, or if it may have rows that were
/// never committed.
pub(super) fn salvaged(
    damaged_db: &ReadOnlyDb,
    tree: &SurvivingTree,
    id: u64,
    external: Option<Seqno>,
    unnamed: &mut UnnamedLosses,
    lost: &mut dyn FnMut(Error),
) -> Result<Option<SalvageIter>> {
    let name = file_name(FileKind::Sst, id);
    let store = damaged_db.source().store();
    let opened = match tree.remote.get(&id) {
        Some(remote) => store
            .open_remote(remote, Arc::new(()))
            .map(|file| Arc::clone(file.file())),
        None => store.open(id),
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if *error.kind() == ErrorKind::NotFound => {
            let held = tree.held.get(&id).cloned().unwrap_or_default();
            unnamed.files.push((name, held));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let properties = || SstReader::read_properties(&*file, id, &name);
    let external = match external {
        None => match properties() {
            // A bulk load wrote the file. Rows of a load need no commit of their own: they are
            // visible if the catalog names their index.
            Ok(properties) if properties.loaded => Some(LOADED_SEQNO),
            Ok(properties) if properties.external_seqno => {
                // Do not show rows that may never have been committed.
                let what = "neither manifest nor log say whether the transaction that wrote it was committed";
                lost(Error::corruption(name, 0, what));
                return Ok(None);
            }
            Err(error) if error.leaves_bytes_unknown() => return Err(error),
            _ => None,
        },
        known => known,
    };
    let cache = Arc::clone(damaged_db.source().cache());
    let salvage = Salvage::open(file, id, name, cache, lost)?;
    unnamed.ranges.extend_from_slice(salvage.lost());
    Ok(Some(salvage.iter(external)))
}
