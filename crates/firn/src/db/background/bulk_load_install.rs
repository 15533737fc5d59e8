//! Installs the files of bulk loads: their limits, and the one edit that puts the files into the
//! tree.

use super::BackgroundWork;
use crate::base::{CounterValue, Result};
use crate::ingest::{LoadHost, LoadLimits, NewFiles, Pacer};
use crate::store::FileKind;
use crate::version::{Edit, FileMeta, LAST_LEVEL, Version, VersionSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Gives bulk loads access to the background work. The transaction context holds this value, so the
/// background work lives as long as the context.
pub(in crate::db) struct BulkLoadHost(pub(in crate::db) Arc<BackgroundWork>);

impl LoadHost for BulkLoadHost {
    fn limits(&self) -> LoadLimits {
        let work = Arc::clone(&self.0);
        let pacer: Pacer = Arc::new(move |bytes, cancel: &AtomicBool| {
            work.health.check()?;
            work.limiter.take(bytes, cancel)
        });
        let (memory, allowance) = self.0.memory.begin_load();
        LoadLimits {
            memory,
            allowance,
            threads: self.0.options.background_jobs > 0,
            pacer,
            interrupted: Arc::default(),
            gauge: Arc::clone(self.0.memory.write_sets().loads()),
        }
    }

    fn install(&self, files: NewFiles, counters: Vec<(u64, CounterValue)>) -> Result<()> {
        self.0.install_loaded(files, counters)
    }
}

impl BackgroundWork {
    /// Installs files with keys that no other file of the tree has. They go into the last level if
    /// no file and no job there overlaps their key ranges (a file of several small tables may
    /// overlap them without having a key in them). Otherwise they go into the level above, from
    /// where a compaction moves them down, or into L0.
    fn install_loaded(&self, files: NewFiles, counters: Vec<(u64, CounterValue)>) -> Result<()> {
        self.health.check()?;
        let ids: Vec<u64> = files.files().iter().map(|file| file.file_id).collect();
        self.versions.source().store().keep(FileKind::Sst, &ids)?;
        // The log archive needs a record of the load: its files and its counters.
        let (metas, maxima) = (files.files().to_vec(), counters.clone());
        let logged = || self.pipeline.note_load(&metas, &maxima);
        let edit =
            |files: NewFiles, level, run, counters| edit_of(files.keep(), level, run, counters);
        let placed = {
            // Hold `running` until the edit is installed. Otherwise a job could begin in between
            // and write a file into the same level that overlaps the loaded files.
            let running = self.running.lock();
            let version = self.versions.current();
            let busy = |level, file: &FileMeta| running.works_on(level, &file.range());
            match free_level(&version, files.files(), &busy) {
                Some(level) => {
                    self.install_with(edit(files, level, 0, counters), &[], &[], logged)?;
                    None
                }
                None => Some((files, counters)),
            }
        };
        if let Some((files, counters)) = placed {
            // Hold the mutex under which flushes take their run numbers: run numbers must be
            // installed in ascending order.
            let _in_order = self.flushing.lock();
            let run = self.versions.new_run_number();
            self.install_with(edit(files, 0, run, counters), &[], &[], logged)?;
        }
        self.signals.lock().compact = true;
        self.signal.notify_all();
        Ok(())
    }
}

/// Installs the files of loads that a recovery to a point found in the log, oldest first. Like
/// [`BackgroundWork::install_loaded`], but before any job runs.
pub(in crate::db) fn install_found(
    versions: &VersionSet,
    loads: &mut Vec<Vec<FileMeta>>,
) -> Result<()> {
    for files in loads.drain(..) {
        let version = versions.current();
        let edit = match free_level(&version, &files, &|_, _| false) {
            Some(level) => edit_of(files, level, 0, Vec::new()),
            None => edit_of(files, 0, versions.new_run_number(), Vec::new()),
        };
        versions.apply(edit)?;
    }
    Ok(())
}

/// The edit that adds the files at `level`. All their entries have seqno 0, so every snapshot sees
/// them. That is safe: no catalog entry names their indexes yet, and the catalog entry that will
/// name them says from which seqno on they are visible.
fn edit_of(files: Vec<FileMeta>, level: u8, run: u64, counters: Vec<(u64, CounterValue)>) -> Edit {
    let files = files.into_iter();
    let added = files.map(|meta| (level, run, meta.with_external_seqno(0)));
    Edit {
        added: added.collect(),
        counters,
        ..Edit::default()
    }
}

/// The last level or, as second choice, the level above it: the first of them in which no file and
/// no running job overlaps any of `files`.
fn free_level(
    version: &Version,
    files: &[FileMeta],
    busy: &dyn Fn(u8, &FileMeta) -> bool,
) -> Option<u8> {
    let free = |level: &u8| {
        files.iter().all(|file| {
            !busy(*level, file) && is_free(version, *level, &file.smallest, &file.largest)
        })
    };
    [LAST_LEVEL as u8, LAST_LEVEL as u8 - 1]
        .into_iter()
        .find(free)
}

fn is_free(version: &Version, level: u8, smallest: &[u8], largest: &[u8]) -> bool {
    let upper = Bound::Included(largest);
    let mut runs = version.runs(level).iter();
    runs.all(|run| run.overlapping(smallest, upper).is_empty())
}
