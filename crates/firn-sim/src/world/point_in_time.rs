//! Backups and noted states, for point-in-time recovery from an archived log.

use super::check::DatabaseContents;
use super::{StepEnd, World};
use crate::archive_recovery::{self, ARCHIVE};
use crate::ensure;
use firn::backup::RecoveryTarget;
use firn::base::Seqno;
use firn::catalog::CATALOG_INDEX;
use firn::db::Db;
use firn::env::Env;
use rand::Rng;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The contents of the database after commit `seqno`, at a wall-clock time.
struct NotedState {
    seqno: Seqno,
    wall_ms: u64,
    seen: DatabaseContents,
}

/// The backups and states of the model that [`World::check_point`] chooses from.
#[derive(Default)]
pub(super) struct RecoveryPoints {
    /// Directory and last commit of each backup, oldest first.
    backups: Vec<(PathBuf, Seqno)>,
    marks: Vec<NotedState>,
}

impl World {
    /// Archives the log from the next start on; with `apart`, on a separate file system.
    pub fn archive_log(&mut self, apart: bool) {
        self.options.log_archive_dir = Some(PathBuf::from(ARCHIVE));
        if apart {
            self.env.set_apart(Path::new(ARCHIVE));
        }
    }

    fn last_seqno(&self) -> Seqno {
        self.db().context().pipeline.last_seqno()
    }

    fn close_segments(&self, timeout_us: u64) {
        let mutable = &self.options.mutable;
        mutable
            .log_archive_timeout_us
            .store(timeout_us, Ordering::Relaxed);
    }

    /// Makes a backup, notes the state, or archives some of the log.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if a call of the database fails; [`StepEnd::Failed`] if archiving
    /// without an archive directory loses a segment, or if a read is wrong.
    pub fn point_step(&mut self) -> Result<(), StepEnd> {
        match self.rng.random_range(0..10) {
            0..3 => self.back_up(),
            3..7 => self.mark(),
            // The archive directory may not exist yet. Then closed segments must wait to be
            // archived, or the call must fail.
            7 if self.points.marks.is_empty() => {
                let archived = self.db().archive_log();
                let there = self.env.exists(Path::new(ARCHIVE))?;
                let waiting = self.db().archive_stats().unwrap_or_default().waiting;
                ensure!(
                    there || archived.is_err() || waiting == 0,
                    "the log is archived nowhere"
                );
                Ok(())
            }
            _ => {
                self.env.create_dir_all(Path::new(ARCHIVE))?;
                let timeout = if self.lucky(50) { 0 } else { 1_000_000 };
                self.close_segments(timeout);
                self.db().archive_log()?;
                Ok(())
            }
        }
    }

    fn back_up(&mut self) -> Result<(), StepEnd> {
        self.next_name += 1;
        let dir = PathBuf::from(format!("/b{}", self.next_name));
        let flush = self.lucky(30);
        let made = self.db().checkpoint(&dir, flush)?;
        let now = self.history.now();
        self.history.acknowledge(now);
        self.points.backups.push((dir, made.info.seqno));
        Ok(())
    }

    /// Notes the current state. Then moves the clock and commits, so that the state's seqno as well
    /// as its time identify it.
    fn mark(&mut self) -> Result<(), StepEnd> {
        self.end_sessions();
        self.sync_log()?;
        let mut seen = self.see()?;
        // Counters in memory may be ahead of the committed values.
        seen.counters.clone_from(&self.history.side().counters);
        let wall_ms = self.env.wall_micros() / 1000;
        self.env.advance_clock(20_000);
        let seqno = self.last_seqno();
        self.points.marks.push(NotedState {
            seqno,
            wall_ms,
            seen,
        });
        self.persist_counter()
    }

    /// Recovers a random backup to a random noted state, by seqno or by time, and compares. Then
    /// opens the recovered database again and compares once more.
    ///
    /// # Errors
    /// [`StepEnd::Failed`] if the recovery fails or its result differs; [`StepEnd::Engine`] if a
    /// call of the database fails.
    pub fn check_point(&mut self) -> Result<(), StepEnd> {
        self.env.create_dir_all(Path::new(ARCHIVE))?;
        if self.points.backups.is_empty() {
            self.back_up()?;
            self.steps(60)?;
        }
        self.mark()?;
        self.steps(30)?;
        self.sync_log()?;
        self.close_segments(0);
        self.db().archive_log()?;
        let waiting = self.db().archive_stats().unwrap_or_default().waiting;
        ensure!(waiting == 0, "{waiting} segments wait for the archive");
        let from = self.rng.random_range(0..self.points.backups.len());
        let (backup, seqno) = self.points.backups[from].clone();
        let later: Vec<usize> = (0..self.points.marks.len())
            .filter(|&at| self.points.marks[at].seqno >= seqno)
            .collect();
        let at = later[self.rng.random_range(0..later.len())];
        let mark = &self.points.marks[at];
        let wanted = match self.rng.random() {
            true => RecoveryTarget::Seqno(mark.seqno),
            false => RecoveryTarget::Time(mark.wall_ms),
        };
        let (wanted_seqno, seen) = (mark.seqno, mark.seen.clone());
        // The machine is lost: the synced files of backup and archive must be enough.
        let disk = self.env.copy().crash(0);
        let env: Arc<dyn Env> = Arc::new(disk);
        let dir = Path::new("/recovered");
        let recovered =
            archive_recovery::recover(&env, &backup, seqno, &wanted, dir, &self.options);
        let (db, reached) = match recovered {
            Ok(recovered) => recovered,
            Err(error) => {
                ensure!(
                    false,
                    "{} is not brought to {wanted:?}: {error}",
                    backup.display()
                );
                unreachable!("ensured")
            }
        };
        ensure!(
            reached == wanted_seqno,
            "{wanted:?} led to commit {reached}, expected {wanted_seqno}"
        );
        self.compare(&db, &seen, &format!("{} at {wanted:?}", backup.display()))?;
        // Commits after the point must not come back with the next open.
        db.close()?;
        drop(db);
        let options = firn::base::options::Options {
            log_archive_dir: None,
            ..self.options.clone()
        };
        let again = Db::open(env, dir, options, None)?;
        self.compare(&again, &seen, "opened again")?;
        again.compact_all()?;
        Self::check_no_garbage(&again, &seen)?;
        self.stats.points += 1;
        Ok(())
    }

    /// Checks that after a full compaction no file has entries of an index that was dropped before
    /// the state `expected`.
    fn check_no_garbage(db: &Db, expected: &DatabaseContents) -> Result<(), StepEnd> {
        let live = expected.tables.values().flatten();
        let live: Vec<_> = live.chain(&super::LOOSE).collect();
        let version = &db.context().super_versions.latest().super_version.version;
        let found = version.all_index_stats().map(|stats| stats.index);
        let garbage: Vec<_> = found
            .filter(|id| *id != CATALOG_INDEX && !live.contains(&id))
            .collect();
        ensure!(
            garbage.is_empty(),
            "files have entries of the dropped indexes {garbage:?}"
        );
        Ok(())
    }

    fn compare(&self, db: &Db, expected: &DatabaseContents, what: &str) -> Result<(), StepEnd> {
        let found = self.see_in(db)?;
        ensure!(
            found.tables == expected.tables,
            "{what}: tables {:?}, expected {:?}",
            found.tables,
            expected.tables
        );
        ensure!(
            found.prepared == expected.prepared,
            "{what}: prepared {:?}, expected {:?}",
            found.prepared,
            expected.prepared
        );
        for (counter, value) in &expected.counters {
            let raised = found.counters.get(counter).copied().unwrap_or_default();
            ensure!(
                raised >= *value,
                "{what}: counter {counter} is {raised:?}, was {value:?}"
            );
        }
        let live = expected.tables.values().flatten().copied();
        for id in super::LOOSE.into_iter().chain(live) {
            let same = found.entries.get(&id) == expected.entries.get(&id);
            ensure!(same, "{what}: index {id} differs");
        }
        Ok(())
    }
}
