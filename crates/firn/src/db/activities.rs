//! The work that is going on, for the error log of a start or a stop that takes long.

use crate::base::event_listener::{Listener, Severity};
use crate::env::Env;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time until the first message of a [`ProgressReporter`]. Each pause is twice as long as the one
/// before, up to [`PAUSE_MAX`].
const FIRST_PAUSE: Duration = match cfg!(test) {
    true => Duration::from_millis(5),
    false => Duration::from_secs(1),
};

/// Longest pause between two messages of a [`ProgressReporter`].
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Pieces of work that are going on, each with a text and the time at which it began.
pub(super) struct Activities {
    env: Arc<dyn Env>,
    list: Mutex<ActivityList>,
}

#[derive(Default)]
struct ActivityList {
    last: u64,
    running: BTreeMap<u64, (u64, String)>,
}

/// A piece of work, which may have several steps. It ends when this value is dropped. Its age
/// counts from its begin, not from that of its current step.
pub(super) struct Activity<'a> {
    of: &'a Activities,
    number: u64,
}

impl Activities {
    pub(super) fn new(env: Arc<dyn Env>) -> Self {
        Self {
            env,
            list: Mutex::default(),
        }
    }

    /// Notes that a piece of work begins.
    pub(super) fn begin(&self, text: impl Into<String>) -> Activity<'_> {
        let now = self.env.monotonic_micros();
        let mut list = self.list.lock();
        list.last += 1;
        let number = list.last;
        list.running.insert(number, (now, text.into()));
        Activity { of: self, number }
    }

    /// Describes what is going on, the oldest first. `None` if nothing is.
    fn describe(&self) -> Option<String> {
        let now = self.env.monotonic_micros();
        let list = self.list.lock();
        let describe = |(begun, text): &(u64, String)| {
            format!(
                "{text} ({} s so far)",
                now.saturating_sub(*begun) / 1_000_000
            )
        };
        let all: Vec<String> = list.running.values().map(describe).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Activity<'_> {
    /// Replaces the text, because the work has come to another step. The time at which the work
    /// began stays.
    pub(super) fn set(&self, text: impl Into<String>) {
        if let Some((_, old)) = self.of.list.lock().running.get_mut(&self.number) {
            *old = text.into();
        }
    }
}

impl Drop for Activity<'_> {
    fn drop(&mut self) {
        self.of.list.lock().running.remove(&self.number);
    }
}

/// Writes the activities to the error log every few seconds until it is dropped. It is a thread of
/// its own, so that it also reports a call of the operating system that does not return.
pub(super) struct ProgressReporter {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressReporter {
    /// Begins to report. Each message starts with `phase`. Without room for a thread nothing is
    /// reported.
    pub(super) fn begin(
        phase: &'static str,
        activities: Arc<Activities>,
        listener: Listener,
    ) -> Self {
        let (end, ended) = mpsc::channel();
        let report = move || {
            let mut pause = FIRST_PAUSE;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let doing = activities.describe();
                let doing = doing.as_deref().unwrap_or("threads have not ended yet");
                listener.log(Severity::Note, &format!("{phase}: {doing}"));
                pause = (2 * pause).min(PAUSE_MAX);
            }
        };
        let thread = std::thread::Builder::new().name("firn-progress".to_owned());
        Self {
            end: Some(end),
            thread: thread.spawn(report).ok(),
        }
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
