//! The health of a store, and the breaker that keeps callers from a dead one.
//!
//! Three requests in a row without an answer open the breaker. While it is open, a request waits
//! for the next probe, or fails at once if its deadline is sooner. When a probe is due, the next
//! request is the probe; each one that fails doubles the pause, from 1 s to 30 s.

use crate::error::{Error, ErrorKind, KINDS};
use parking_lot::Mutex;

/// Requests in a row without an answer that open the breaker.
const SILENT_MAX: u32 = 3;
/// The shortest and the longest pause between probes, microseconds.
const PAUSE_US_MIN: u64 = 1_000_000;
/// See [`PAUSE_US_MIN`].
const PAUSE_US_MAX: u64 = 30_000_000;
/// A probe without result after this time, as of a thread that has died, is given up.
const PROBE_US: u64 = 60_000_000;
/// A request may take this long, and a microsecond more for each of `BYTES_PER_US` bytes, before
/// the store counts as slow.
const SLOW_US: u64 = 1_000_000;
/// See [`SLOW_US`].
const BYTES_PER_US: u64 = 8;
/// How long after a throttled request the store counts as slow, microseconds.
const THROTTLED_US: u64 = 10_000_000;

/// How a store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// It answers.
    Up,
    /// It answers late, or asks for fewer requests.
    Slow,
    /// It does not answer: the breaker is open.
    Down,
}

/// Figures of a store.
#[derive(Clone, Debug)]
pub struct HealthStats {
    /// How it does.
    pub state: HealthState,
    /// Requests, those tried again included.
    pub requests: u64,
    /// Failed requests by the number of their [`ErrorKind`].
    pub errors: [u64; KINDS],
    /// How often the breaker has opened.
    pub opened: u64,
    /// For how long it has been open, microseconds; 0 if it is not.
    pub out_us: u64,
    /// The mean time of the latest requests, microseconds.
    pub mean_us: u64,
    /// The latest failure of a kind other than `Absent`.
    pub last_error: Option<String>,
}

/// The permission of a request to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Go,
    /// Ask again then: the clock's microseconds.
    Wait(u64),
}

/// See the module.
#[derive(Default)]
pub struct Health(Mutex<HealthFigures>);

#[derive(Default)]
struct HealthFigures {
    is_open: bool,
    opened_at_us: u64,
    /// When the next request is let through.
    probe_at_us: u64,
    pause_us: u64,
    silent: u32,
    /// When the last request without an answer was given up.
    silent_at_us: u64,
    throttled_until_us: u64,
    /// The mean of time taken / time allowed, in thousandths.
    slowness: u64,
    mean_us: u64,
    requests: u64,
    errors: [u64; KINDS],
    opened: u64,
    last_error: Option<String>,
}

impl Health {
    /// Whether a request may go.
    pub(crate) fn admit(&self, now_us: u64) -> Admission {
        let mut figures = self.0.lock();
        if !figures.is_open {
            return Admission::Go;
        }
        if now_us < figures.probe_at_us {
            return Admission::Wait(figures.probe_at_us);
        }
        // This one is the probe. The others wait for what it finds.
        figures.probe_at_us = now_us + PROBE_US;
        Admission::Go
    }

    /// A request of `bytes` bytes that was sent at `sent_us` has succeeded or failed.
    pub(crate) fn note(&self, sent_us: u64, now_us: u64, bytes: u64, result: Result<(), &Error>) {
        let mut figures = self.0.lock();
        figures.requests += 1;
        if let Err(error) = result {
            figures.errors[error.kind() as usize] += 1;
            if error.kind() != ErrorKind::Absent {
                figures.last_error = Some(error.to_string());
            }
            if error.kind() == ErrorKind::Unreachable {
                figures.note_silent(sent_us, now_us);
                return;
            }
            if error.kind() == ErrorKind::Throttled {
                figures.throttled_until_us = now_us + THROTTLED_US;
            }
        }
        let taken_us = now_us.saturating_sub(sent_us);
        let allowed_us = SLOW_US + bytes / BYTES_PER_US;
        figures.slowness = (figures.slowness * 7 + taken_us * 1000 / allowed_us) / 8;
        figures.mean_us = (figures.mean_us * 7 + taken_us) / 8;
        figures.silent = 0;
        figures.is_open = false;
    }

    /// For how long the breaker has been open; 0 if it is not.
    pub(crate) fn out_us(&self, now_us: u64) -> u64 {
        self.0.lock().out_us(now_us)
    }

    /// How the store does.
    pub fn state(&self, now_us: u64) -> HealthState {
        self.0.lock().state(now_us)
    }

    /// Its figures.
    pub fn stats(&self, now_us: u64) -> HealthStats {
        let figures = self.0.lock();
        HealthStats {
            state: figures.state(now_us),
            requests: figures.requests,
            errors: figures.errors,
            opened: figures.opened,
            out_us: figures.out_us(now_us),
            mean_us: figures.mean_us,
            last_error: figures.last_error.clone(),
        }
    }
}

impl HealthFigures {
    /// Requests that were under way when another one was given up count with that one: a hiccup of
    /// the network is one, however many requests it hits.
    fn note_silent(&mut self, sent_us: u64, now_us: u64) {
        if self.silent > 0 && sent_us < self.silent_at_us {
            return;
        }
        self.silent_at_us = now_us;
        if self.is_open {
            self.pause_us = (self.pause_us * 2).min(PAUSE_US_MAX);
            self.probe_at_us = now_us + self.pause_us;
            return;
        }
        self.silent += 1;
        if self.silent >= SILENT_MAX {
            self.is_open = true;
            self.opened += 1;
            self.opened_at_us = now_us;
            self.pause_us = PAUSE_US_MIN;
            self.probe_at_us = now_us + self.pause_us;
        }
    }

    fn out_us(&self, now_us: u64) -> u64 {
        match self.is_open {
            true => now_us.saturating_sub(self.opened_at_us),
            false => 0,
        }
    }

    fn state(&self, now_us: u64) -> HealthState {
        if self.is_open {
            HealthState::Down
        } else if self.slowness > 1000 || now_us < self.throttled_until_us {
            HealthState::Slow
        } else {
            HealthState::Up
        }
    }
}

#[cfg(test)]
mod tests;
