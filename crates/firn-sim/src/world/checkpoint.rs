//! Checks of checkpoints: a checkpoint has the right contents when it is made and after crashes,
//! and writes to it and to the database do not change the other one.

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

/// Most checkpoints kept on disk at the same time.
const KEPT_MAX: usize = 3;

/// A finished checkpoint, with its contents.
pub(super) struct KeptCheckpoint {
    pub(super) dir: PathBuf,
    pub(super) holds: DatabaseContents,
}

impl KeptCheckpoint {
    /// Whether the checkpoint still has its contents.
    pub(super) fn is_shown_by(&self, seen: &DatabaseContents) -> bool {
        let holds = &self.holds;
        seen.tables == holds.tables
            && seen.prepared == holds.prepared
            && holds.entries.iter().all(|(id, entries)| {
                // Compare only indexes of existing tables. The checkpoint may still hold some of
                // the entries of dropped indexes, which compactions remove bit by bit.
                let live = holds.tables.values().flatten().any(|live| live == id);
                !live || seen.entries.get(id) == Some(entries)
            })
    }
}

impl World {
    /// Makes a checkpoint and compares its contents with the model.
    pub(super) fn checkpoint(&mut self) -> Result<(), StepEnd> {
        self.next_name += 1;
        let dir = PathBuf::from(format!("/c{}", self.next_name));
        let flush = self.lucky(50);
        self.db().checkpoint(&dir, flush)?;
        self.keep_checkpoint(dir)
    }

    /// Compares the contents of a checkpoint that was just made with the model.
    pub(super) fn keep_checkpoint(&mut self, dir: PathBuf) -> Result<(), StepEnd> {
        self.stats.checkpoints += 1;
        // The checkpoint made the log durable up to its last record.
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

    /// Checks that a checkpoint made before the crash still opens with the same contents.
    pub(super) fn check_kept(&mut self) -> Result<(), StepEnd> {
        // Check only one random checkpoint after each crash, to save time. A run has many crashes.
        let Some(at) = self.checkpoints.len().checked_sub(1) else {
            return Ok(());
        };
        let at = self.rng.random_range(0..=at);
        let after = self.copy_of_disk();
        let kept = &self.checkpoints[at];
        let seen = self.look_at(&after, &kept.dir)?;
        ensure!(
            kept.is_shown_by(&seen),
            "the checkpoint {} holds something else after a crash",
            kept.dir.display()
        );
        Ok(())
    }

    /// A copy of the disk, as it is or as a power cut would leave it now.
    fn copy_of_disk(&mut self) -> MemEnv {
        let copy = self.env.copy();
        match self.lucky(50) {
            true => copy,
            false => copy.crash(self.rng.random_range(0..1 << 32)),
        }
    }

    /// Opens the checkpoint in `dir` on `disk` and reads its contents.
    fn look_at(&self, disk: &MemEnv, dir: &Path) -> Result<DatabaseContents, StepEnd> {
        // To open a checkpoint takes room.
        disk.unfill();
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

    /// Checks, on a copy of the disk, that writes to the checkpoint do not change the database.
    fn check_apart(&mut self, dir: &Path) -> Result<(), StepEnd> {
        let disk = self.env.copy();
        disk.unfill();
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
        // The copy of the disk holds the database as a kill would leave it. So the database may
        // show any moment from the durable one on.
        let attached = self.attached(&disk);
        let db = Db::open_with(env, Path::new(DIR), options, None, attached)?;
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
