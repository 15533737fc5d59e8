//! Checkpoints: what they hold at once, after crashes, and when both sides go on writing.

use super::check::DatabaseContents;
use super::{DIR, StepEnd, World};
use crate::ensure;
use firn::base::{ErrorKind, Value};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::txn::Isolation;
use rand::Rng;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checkpoints that are kept at the same time.
const KEPT_MAX: usize = 3;

/// A checkpoint that is there for good.
pub(super) struct KeptCheckpoint {
    dir: PathBuf,
    holds: DatabaseContents,
}

impl World {
    /// Makes a checkpoint of what is there now.
    pub(super) fn checkpoint(&mut self) -> Result<(), StepEnd> {
        self.next_name += 1;
        let dir = PathBuf::from(format!("/c{}", self.next_name));
        let flush = self.lucky(50);
        self.db().checkpoint(&dir, flush)?;
        self.stats.checkpoints += 1;
        // The log was cut behind the last record.
        let now = self.history.now();
        self.history.acknowledge(now);
        let after = self.copy_of_disk();
        let holds = self.look_at(&after, &dir)?;
        let side = self.history.side();
        if let Some(what) = self.difference(&holds, now, side) {
            ensure!(false, "the checkpoint is wrong: {what}");
        }
        ensure!(
            holds.prepared.iter().eq(side.prepared.keys()),
            "the checkpoint has prepared {:?}, expected {:?}",
            holds.prepared,
            side.prepared.keys()
        );
        if self.lucky(30) {
            self.check_apart(&dir)?;
        }
        self.checkpoints.push(KeptCheckpoint { dir, holds });
        if self.checkpoints.len() > KEPT_MAX {
            let gone = self.rng.random_range(0..=KEPT_MAX);
            let gone = self.checkpoints.remove(gone);
            for name in self.env.list_dir(&gone.dir)? {
                self.env.remove(&gone.dir.join(name))?;
            }
        }
        Ok(())
    }

    /// The checkpoints that were there before a crash are, and hold the same.
    pub(super) fn check_kept(&mut self) -> Result<(), StepEnd> {
        // One at a time is enough: there are many crashes.
        let Some(at) = self.checkpoints.len().checked_sub(1) else {
            return Ok(());
        };
        let at = self.rng.random_range(0..=at);
        let after = self.copy_of_disk();
        let kept = &self.checkpoints[at];
        let (dir, holds) = (kept.dir.clone(), kept.holds.clone());
        let seen = self.look_at(&after, &dir)?;
        ensure!(
            seen.tables == holds.tables
                && seen.prepared == holds.prepared
                && holds.entries.iter().all(|(id, entries)| {
                    // Of dropped indexes entries go one after the other.
                    let live = holds.tables.values().flatten().any(|live| live == id);
                    !live || seen.entries.get(id) == Some(entries)
                }),
            "the checkpoint {} holds something else after a crash",
            dir.display()
        );
        Ok(())
    }

    /// The disk as it is, or as a power cut now would leave it.
    fn copy_of_disk(&mut self) -> MemEnv {
        let copy = self.env.copy();
        match self.lucky(50) {
            true => copy,
            false => copy.crash(self.rng.random_range(0..1 << 32)),
        }
    }

    /// What the checkpoint in `dir` holds on that disk.
    fn look_at(&self, disk: &MemEnv, dir: &Path) -> Result<DatabaseContents, StepEnd> {
        let opened = Db::open(Arc::new(disk.clone()), dir, self.options.clone(), None);
        match opened {
            Ok(db) => self.see_in(&db),
            Err(error) => {
                ensure!(
                    false,
                    "the checkpoint {} does not open: {error}",
                    dir.display()
                );
                unreachable!("ensured")
            }
        }
    }

    /// On a copy of the disk: whatever is done to the checkpoint, the database does not change.
    fn check_apart(&mut self, dir: &Path) -> Result<(), StepEnd> {
        let disk = self.env.copy();
        let env: Arc<dyn Env> = Arc::new(disk.clone());
        let options = self.options.clone();
        let copy = Db::open(Arc::clone(&env), dir, options.clone(), None)?;
        for n in 0..60u64 {
            let mut txn = copy.new_transaction(copy.new_owner(0));
            txn.begin_statement(n + 1, Isolation::RepeatableRead, 0, true);
            let key = [&super::LOOSE[0].to_be_bytes()[..], &(n % 7).to_be_bytes()].concat();
            txn.put(&key, Value::split(&[n as u8; 900], b""))?;
            match txn.commit() {
                Err(error) if *error.kind() != ErrorKind::NoSpace => return Err(error.into()),
                _ => {}
            }
            if n % 20 == 19 {
                copy.compact_all()?;
            }
        }
        drop(copy);
        // The database in the copy is as a kill leaves it.
        let db = Db::open(env, Path::new(DIR), options, None)?;
        let seen = self.see_in(&db)?;
        let found = (self.history.durable()..=self.history.now()).any(|at| {
            self.difference(&seen, at, &self.history.side_at(at))
                .is_none()
        });
        ensure!(
            found,
            "work on the checkpoint {} changed the database",
            dir.display()
        );
        Ok(())
    }
}
