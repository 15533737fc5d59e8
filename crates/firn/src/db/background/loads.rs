//! What loads need of the database: limits, and the one edit that puts their files into the tree.

use super::Work;
use crate::base::Result;
use crate::ingest::{LoadHost, LoadLimits, NewFiles, Pacer};
use crate::version::{Edit, LAST_LEVEL, Version};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The way to the work, which is made before the transactions' context and lives as long.
pub(in crate::db) struct Loads(pub(in crate::db) Arc<Work>);

impl LoadHost for Loads {
    fn limits(&self) -> LoadLimits {
        let work = Arc::clone(&self.0);
        let pacer: Pacer = Arc::new(move |bytes, cancel: &AtomicBool| {
            work.health.check()?;
            work.limiter.take(bytes, cancel)
        });
        LoadLimits {
            memory: self.0.options.live.load_memory(),
            threads: self.0.options.background_jobs > 0,
            pacer,
            interrupted: Arc::default(),
            gauge: Arc::clone(self.0.memory.write_sets()),
        }
    }

    fn install(&self, files: NewFiles, counters: Vec<(u64, u64)>) -> Result<()> {
        self.0.install_loaded(files, counters)
    }
}

impl Work {
    /// Installs files with keys that nothing else in the tree has, into the last level if no file and no
    /// job there is in the way: a file of small tables may span the range, without a key in it. Then into
    /// the level above, from where a compaction takes them down, or into L0.
    fn install_loaded(&self, files: NewFiles, counters: Vec<(u64, u64)>) -> Result<()> {
        self.health.check()?;
        let edit = |files: NewFiles, level: u8, run: u64, counters| {
            // Private until now, and visible from the seqno on that the catalog gives their indexes.
            let files = files.keep().into_iter();
            let added = files.map(|meta| (level, run, meta.with_external_seqno(0)));
            Edit {
                added: added.collect(),
                counters,
                ..Edit::default()
            }
        };
        let placed = {
            // No job begins meanwhile whose outputs could span the files.
            let running = self.running.lock();
            let version = self.versions.current();
            let free = |level: &u8| {
                files.files().iter().all(|file| {
                    !running.works_on(*level, &file.range())
                        && is_free(&version, *level, &file.smallest, &file.largest)
                })
            };
            match [LAST_LEVEL as u8, LAST_LEVEL as u8 - 1]
                .iter()
                .find(|l| free(l))
            {
                Some(level) => {
                    self.install(edit(files, *level, 0, counters), &[], &[])?;
                    None
                }
                None => Some((files, counters)),
            }
        };
        if let Some((files, counters)) = placed {
            // Numbers of runs are installed in order, and flushes take theirs under this mutex.
            let _in_order = self.flushing.lock();
            let run = self.versions.new_run_number();
            self.install(edit(files, 0, run, counters), &[], &[])?;
        }
        self.signals.lock().compact = true;
        self.signal.notify_all();
        Ok(())
    }
}

fn is_free(version: &Version, level: u8, smallest: &[u8], largest: &[u8]) -> bool {
    let files = version.runs(level).iter().flat_map(|run| &run.files);
    !files
        .into_iter()
        .any(|file| file.overlaps(smallest, largest))
}
