//! Power cuts, kills, restarts, and the checks of the recovered state.

use super::{DIR, StepEnd, World, is_refusal};
use crate::ensure;
use crate::failure::Failure;
use crate::model::Moment;
use firn::base::ErrorKind;
use firn::env::{Env, MemEnv};
use firn::store::ReservePart;
use rand::Rng;
use std::path::Path;

/// A counter that the model does not know.
const UNKNOWN_COUNTER: u64 = 9999;

/// A kind of crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The power is cut: unsynced changes may be lost, in whole or in part.
    PowerCut,
    /// The process is killed: the operating system keeps all writes.
    Kill,
}

impl World {
    /// Makes the environment die when the `n`-th sync from now begins.
    pub fn crash_at_sync(&self, n: u64) {
        self.env.crash_at_sync(self.env.sync_points() + n);
    }

    /// Makes the environment die before the `n`-th change of names from now: before a file is
    /// created, renamed, linked or removed.
    pub fn crash_at_name_change(&self, n: u64) {
        self.env.crash_at_name_change(self.env.name_changes() + n);
    }

    /// From now on, the environment may also die at a change of names during an open.
    pub fn die_at_names(&mut self) {
        self.dies_at_names = true;
    }

    /// Crashes the environment and opens the database again; with `during_recovery`, the
    /// environment may die again during the open, a few times. Then checks the recovered state and
    /// opens sessions.
    ///
    /// # Errors
    /// [`StepEnd::Failed`] if the database does not open or its state is not one of those allowed;
    /// [`StepEnd::Engine`] if a read fails.
    pub fn crash(&mut self, end: End, during_recovery: bool) -> Result<(), StepEnd> {
        // Drop the sessions after the environment has died: then they cannot remove the files that
        // their transactions had spilled.
        let sessions = std::mem::take(&mut self.sessions);
        self.die(end);
        drop(sessions);
        let mut cut = end == End::PowerCut;
        loop {
            let again = during_recovery && self.lucky(30);
            if again {
                let after = self.rng.random_range(1..12);
                match self.dies_at_names && self.rng.random() {
                    true => self.crash_at_name_change(after),
                    false => self.crash_at_sync(after),
                }
            }
            match self.start() {
                // An open may succeed although the environment died in it: the last call of an open
                // writes the sync marker behind a durable manifest edit, and the open succeeds even
                // if this write fails. Such a database refuses writes, so it is opened again.
                Ok(db) if !self.env.is_dead() => self.db = Some(db),
                Err(error) if !self.env.is_dead() => {
                    ensure!(false, "the database does not open after {end:?}: {error}");
                }
                _ => {
                    let end = self.random_end();
                    cut |= end == End::PowerCut;
                    self.die(end);
                    continue;
                }
            }
            // Cancel the planned death: the environment lives until the caller plans another.
            self.env.crash_at_sync(0);
            self.env.crash_at_name_change(0);
            break;
        }
        let from = match cut {
            true => self.history.durable(),
            false => self.history.written(),
        };
        self.find_outcome(from)?;
        self.check_kept()?;
        self.open_sessions();
        Ok(())
    }

    /// Removes the log's part of the disk reserve, durably, if it is there: an administrator in
    /// search of room may do so, and many deletions on a full disk use it up.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if the environment has died.
    pub fn lose_log_reserve(&mut self) -> Result<(), StepEnd> {
        let dir = Path::new(DIR);
        let part = dir.join(ReservePart::Log.name());
        if self.env.exists(&part)? {
            self.env.remove(&part)?;
            self.env.sync_dir(dir)?;
        }
        Ok(())
    }

    /// From now on, the log may have no segment on a full disk.
    pub fn may_lack_log(&mut self) {
        self.may_lack_log = true;
    }

    /// Chooses a power cut (70 %) or a kill.
    pub fn random_end(&mut self) -> End {
        match self.lucky(70) {
            true => End::PowerCut,
            false => End::Kill,
        }
    }

    fn die(&mut self, end: End) {
        self.has_stray_files = false;
        self.stats.crashes += 1;
        let next: MemEnv = match end {
            End::PowerCut => self.env.crash(self.rng.random_range(0..1 << 32)),
            End::Kill => self.env.kill(),
        };
        self.db = None;
        // Nothing remembers over a start which objects it names.
        self.named = None;
        if let Some(cold) = &self.cold {
            cold.die(end);
            next.unfill();
        }
        self.env = next;
    }

    /// Opens the database for the first time.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if the open or a read fails; [`StepEnd::Failed`] if the database is not
    /// empty.
    pub fn recover(&mut self) -> Result<(), StepEnd> {
        self.start_again(self.history.now())
    }

    /// Opens the database again in the same environment. The state after the open must not be
    /// before the moment `from`.
    fn start_again(&mut self, from: Moment) -> Result<(), StepEnd> {
        self.db = None;
        self.has_stray_files = false;
        self.db = Some(self.start()?);
        self.find_outcome(from)?;
        self.open_sessions();
        Ok(())
    }

    /// Closes the database and opens it again. After a successful close, or one that fails with
    /// `NoSpace` or `NoDescriptor` (it could not store counters that no transaction committed),
    /// nothing may be lost; after another failed close, the state must not be before the durable
    /// moment.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if the environment has died, or if the open or a read fails;
    /// [`StepEnd::Failed`] if the state is not one of those allowed.
    pub fn reopen(&mut self) -> Result<(), StepEnd> {
        self.end_sessions();
        self.sessions.clear();
        let closed = self.db().close();
        self.named = None;
        if let Some(cold) = &self.cold {
            cold.end_process(closed.is_ok());
        }
        let from = match closed {
            Ok(()) => self.history.now(),
            Err(error) if self.env.is_dead() => return Err(error.into()),
            // Without a segment the log has decisions in memory only; the close cannot write them.
            Err(error) if is_refusal(&error) && self.may_lack_log => self.history.written(),
            Err(error) if is_refusal(&error) => self.history.now(),
            Err(_) => self.history.durable(),
        };
        self.start_again(from)
    }

    /// Finds the moment whose state the database shows, and takes the model back to it. The moment
    /// must not be before `from`. If several moments have this state, because some events have no
    /// visible effect, the latest one counts.
    fn find_outcome(&mut self, from: Moment) -> Result<(), StepEnd> {
        let seen = self.see()?;
        let now = self.history.now();
        let mut differences = Vec::new();
        let found = (from..=now).rev().find(|&at| {
            let side = self.history.side_at(at);
            let prepared = side.prepared.keys().cloned().collect();
            let difference = self.difference(&seen, at, &side).or_else(|| {
                (seen.prepared != prepared)
                    .then(|| format!("prepared {:?}, expected {prepared:?}", seen.prepared))
            });
            match difference {
                None => true,
                Some(what) => {
                    differences.push(format!("moment {at}: {what}"));
                    false
                }
            }
        });
        let Some(at) = found else {
            let what = "recovery did not lead to any state that may be";
            let all = differences.join("\n  ");
            let message = format!("{what} (from {from} to {now}):\n  {all}");
            return Err(Failure::new(message).into());
        };
        self.stats.lost += now - at;
        self.stats.prepared += seen.prepared.len() as u64;
        self.history.recovered(at);
        if self.sessions.is_empty() {
            self.check_recovered_files()?;
        }
        self.check_dropped(&seen)?;
        self.check_latest()
    }

    /// Returns whether the database accepts writes: tries to persist a counter that the model does
    /// not know.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if the write fails with another kind than `Poisoned`.
    pub fn accepts_writes(&self) -> Result<bool, StepEnd> {
        match self.db().catalog().persist_counter(UNKNOWN_COUNTER, 1) {
            Ok(()) => Ok(true),
            Err(error) if *error.kind() == ErrorKind::Poisoned => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Determines without a restart whether a failed call has taken effect. The engine must not be
    /// poisoned: this function syncs the log first.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if a sync or a read fails; [`StepEnd::Failed`] if the state fits no
    /// moment since the durable one.
    pub fn find_outcome_alive(&mut self) -> Result<(), StepEnd> {
        self.end_sessions();
        self.db().sync_log()?;
        self.find_outcome(self.history.durable())
    }

    /// Checks, after a failed call and without a restart, that reads show the state of one moment
    /// that is not before the durable one, without the event of the failed call.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if a read fails; [`StepEnd::Failed`] if no such moment fits.
    pub fn check_readable(&mut self) -> Result<(), StepEnd> {
        let seen = self.see()?;
        let (from, now) = (self.history.durable(), self.history.last_visible());
        let mut differences = Vec::new();
        for at in (from..=now).rev() {
            // Do not compare the sets of tables: the failed call may have been DDL, and the catalog
            // in memory may or may not have its change.
            let mut side = self.history.side_at(at);
            side.tables.clone_from(&seen.tables);
            match self.difference(&seen, at, &side) {
                None => return Ok(()),
                Some(what) => differences.push(format!("moment {at}: {what}")),
            }
        }
        let all = differences.join("\n  ");
        ensure!(false, "after the failure no state fits:\n  {all}");
        Ok(())
    }
}
