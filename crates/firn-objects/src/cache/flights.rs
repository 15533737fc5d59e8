//! Chunks on their way from the store: of several threads that want one, one asks.

use super::s3_fifo::Key;
use crate::error::Result;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub struct Flights(Mutex<HashMap<Key, Arc<Flight>>>);

/// A chunk on its way.
#[derive(Default)]
pub struct Flight {
    progress: Mutex<Progress>,
    ended: Condvar,
}

#[derive(Default)]
enum Progress {
    #[default]
    UnderWay,
    Landed(Result<Bytes>),
    /// The one who asked has not, or has panicked.
    GivenUp,
}

/// The one who asks. Dropped without an answer, it gives the flight up.
pub struct Pilot<'a> {
    flights: &'a Flights,
    key: Key,
    flight: Arc<Flight>,
}

/// The one that asks for a chunk.
pub enum Claim<'a> {
    /// The caller.
    Mine(Pilot<'a>),
    /// Somebody else.
    Theirs(Arc<Flight>),
    /// Nobody: the chunk has come.
    There,
}

impl Flights {
    /// Claims a chunk, unless `is_there`. A chunk comes before its flight ends, so one that neither
    /// flies nor is there is really missing.
    pub fn claim(&self, key: Key, is_there: impl Fn() -> bool) -> Claim<'_> {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.get(&key) {
            return Claim::Theirs(flight.clone());
        }
        if is_there() {
            return Claim::There;
        }
        let flight: Arc<Flight> = Arc::default();
        flights.insert(key, flight.clone());
        Claim::Mine(Pilot {
            flights: self,
            key,
            flight,
        })
    }

    /// Chunks on their way.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Flight {
    /// Waits for the chunk. None if the flight was given up.
    pub fn wait(&self) -> Option<Result<Bytes>> {
        let mut progress = self.progress.lock();
        loop {
            match &*progress {
                Progress::UnderWay => self.ended.wait(&mut progress),
                Progress::Landed(answer) => return Some(answer.clone()),
                Progress::GivenUp => return None,
            }
        }
    }
}

impl Pilot<'_> {
    /// The flight ends.
    pub fn land(self, answer: Result<Bytes>) {
        *self.flight.progress.lock() = Progress::Landed(answer);
    }
}

impl Drop for Pilot<'_> {
    fn drop(&mut self) {
        self.flights.0.lock().remove(&self.key);
        let mut progress = self.flight.progress.lock();
        if let Progress::UnderWay = *progress {
            *progress = Progress::GivenUp;
        }
        drop(progress);
        self.flight.ended.notify_all();
    }
}
