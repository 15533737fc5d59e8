//! Power cuts, kills, restarts, and what must be there afterwards.

use super::{StepEnd, World};
use crate::ensure;
use crate::failure::Failure;
use crate::model::Moment;
use firn::base::ErrorKind;
use firn::env::MemEnv;
use rand::Rng;

/// A counter that the model leaves alone.
const UNKNOWN_COUNTER: u64 = 9999;

/// How a life of the environment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The power is cut: what was not synced may be gone, in whole or in parts.
    PowerCut,
    /// The process is killed: the operating system keeps what was written.
    Kill,
}

impl World {
    /// The environment dies when the `n`-th sync from now begins.
    pub fn crash_at_sync(&self, n: u64) {
        self.env.crash_at_sync(self.env.sync_points() + n);
    }

    /// Ends this life and starts the next one; with `during_recovery`, the power may go off again
    /// while it starts, a few times. Checks what came back and opens sessions.
    pub fn crash(&mut self, end: End, during_recovery: bool) -> Result<(), StepEnd> {
        // The dead do not tidy up: what transactions had spilled is still there.
        let sessions = std::mem::take(&mut self.sessions);
        self.die(end);
        drop(sessions);
        let mut cut = end == End::PowerCut;
        loop {
            let again = during_recovery && self.lucky(30);
            if again {
                let after = self.rng.random_range(1..12);
                self.crash_at_sync(after);
            }
            match self.start() {
                // An open may end well although the last thing it tried failed: the mark behind a
                // durable edit of the manifest, without which writes are refused until the next
                // open.
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
            // From here on this environment is to live until the caller says otherwise.
            self.env.crash_at_sync(0);
            break;
        }
        let from = match cut {
            true => self.history.durable(),
            false => self.history.written(),
        };
        self.settle(from)?;
        self.check_kept()?;
        self.open_sessions();
        Ok(())
    }

    /// A power cut or a kill.
    pub fn random_end(&mut self) -> End {
        match self.lucky(70) {
            true => End::PowerCut,
            false => End::Kill,
        }
    }

    fn die(&mut self, end: End) {
        self.strays = false;
        self.stats.crashes += 1;
        let next: MemEnv = match end {
            End::PowerCut => self.env.crash(self.rng.random_range(0..1 << 32)),
            End::Kill => self.env.kill(),
        };
        self.db = None;
        self.env = next;
    }

    /// Opens the database for the first time.
    pub fn recover(&mut self) -> Result<(), StepEnd> {
        self.start_again(self.history.now())
    }

    /// A restart in the same environment, after which the state is not older than `from`.
    fn start_again(&mut self, from: Moment) -> Result<(), StepEnd> {
        self.db = None;
        self.strays = false;
        self.db = Some(self.start()?);
        self.settle(from)?;
        self.open_sessions();
        Ok(())
    }

    /// A clean restart: nothing is lost. If the close fails, it is no clean one; a full disk only
    /// keeps it from noting counters that nobody committed.
    pub fn reopen(&mut self) -> Result<(), StepEnd> {
        self.end_sessions();
        self.sessions.clear();
        let from = match self.db().close() {
            Ok(()) => self.history.now(),
            Err(error) if self.env.is_dead() => return Err(error.into()),
            Err(error) if *error.kind() == ErrorKind::NoSpace => self.history.now(),
            Err(_) => self.history.durable(),
        };
        self.start_again(from)
    }

    /// Finds the moment the database came back to. It must not be before `from`. The latest one
    /// that fits is taken: events without a visible effect leave a choice.
    fn settle(&mut self, from: Moment) -> Result<(), StepEnd> {
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

    /// Whether writes are accepted: writes something that the model does not know of.
    pub fn accepts_writes(&self) -> Result<bool, StepEnd> {
        match self.db().catalog().persist_counter(UNKNOWN_COUNTER, 1) {
            Ok(()) => Ok(true),
            Err(error) if *error.kind() == ErrorKind::Poisoned => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Finds out what a failed call has left, without a restart, when writes are accepted.
    pub fn settle_alive(&mut self) -> Result<(), StepEnd> {
        self.end_sessions();
        self.db().sync_log()?;
        self.settle(self.history.durable())
    }

    /// Compares what can be read after a failure, without a restart: some state that is not older
    /// than what was acknowledged, and without what has failed.
    pub fn check_readable(&mut self) -> Result<(), StepEnd> {
        let seen = self.see()?;
        let (from, now) = (self.history.durable(), self.history.last_visible());
        let mut differences = Vec::new();
        for at in (from..=now).rev() {
            // The catalog in memory may be behind or ahead by the change that failed.
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
