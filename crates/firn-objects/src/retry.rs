//! Requests that are tried again until they succeed, make no sense, or have no time left.
//!
//! Pauses begin at 50 ms (250 ms if the store asks for fewer requests), double up to 5 s, and have
//! half of their length by chance, so that many callers do not come back together. A read that
//! begins when the store has been out for ten seconds fails at once. Damaged answers
//! are asked for three times at most: a damaged object stays damaged.
//!
//! [`ObjectStore::put_new`] needs care. A request whose answer was lost may have created the
//! object, and the next try then finds the name taken, by itself. So after a lost answer the object
//! is read and compared. The bytes must therefore tell who wrote them: two callers that create the
//! same bytes may both be told that they have won.

use crate::env::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::health::{Admission, Health, HealthState, HealthStats};
use crate::store::{ObjectInfo, ObjectStore, Page, PartTag, PutNew, UploadId, UploadInfo};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first pause, microseconds.
const PAUSE_US_MIN: u64 = 50_000;
/// The first pause when the store throttles, microseconds.
const PAUSE_US_THROTTLED: u64 = 250_000;
/// The longest pause, microseconds.
const PAUSE_US_MAX: u64 = 5_000_000;
/// Reads that begin when the store has been out for so long are not tried again, and wait for no
/// probe: else callers that need many, one after the other, would wait for each.
const OUT_US: u64 = 10_000_000;
/// How often a damaged answer is asked for.
const DAMAGED_MAX: u32 = 3;
/// How often a caller looks whether the store is closed, or a probe of somebody else has found it
/// up.
const LOOK_US: u64 = 100_000;

/// How long requests are tried, microseconds. The last try may end later, by the time that the
/// store gives a single request.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Gets and lists.
    pub read_us: u64,
    /// All others.
    pub write_us: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            read_us: 30_000_000,
            write_us: 120_000_000,
        }
    }
}

/// A store whose requests are tried again.
#[derive(Clone)]
pub struct Retrying {
    store: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    deadlines: Deadlines,
    closes: Arc<AtomicBool>,
}

fn is_closed() -> Error {
    Error::new(ErrorKind::Unreachable, "the object store is closed")
}

impl Retrying {
    /// Tries requests to `store` again.
    pub fn new(store: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>, deadlines: Deadlines) -> Self {
        Self {
            store,
            clock,
            health: Arc::default(),
            deadlines,
            closes: Arc::default(),
        }
    }

    /// The same store with other deadlines; health and breaker are shared.
    pub fn with_deadlines(&self, deadlines: Deadlines) -> Self {
        Self {
            deadlines,
            ..self.clone()
        }
    }

    /// How the store does.
    pub fn health(&self) -> HealthState {
        self.health.state(self.clock.now_us())
    }

    /// Figures of the store.
    pub fn stats(&self) -> HealthStats {
        self.health.stats(self.clock.now_us())
    }

    fn read<T>(&self, bytes: u64, request: impl FnMut() -> Result<T>) -> Result<T> {
        let now_us = self.clock.now_us();
        let is_out = self.health.out_us(now_us) >= OUT_US;
        let deadline_us = now_us + self.deadlines.read_us;
        self.until(if is_out { now_us } else { deadline_us }, bytes, request)
    }

    fn write<T>(&self, bytes: u64, request: impl FnMut() -> Result<T>) -> Result<T> {
        let deadline_us = self.clock.now_us() + self.deadlines.write_us;
        self.until(deadline_us, bytes, request)
    }

    fn until<T>(
        &self,
        deadline_us: u64,
        bytes: u64,
        mut request: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut pause_us = PAUSE_US_MIN;
        let mut damaged = 0;
        loop {
            self.wait_for_breaker(deadline_us)?;
            let sent_us = self.clock.now_us();
            let result = request();
            let now_us = self.clock.now_us();
            let noted = result.as_ref().map(|_| ());
            self.health.note(sent_us, now_us, bytes, noted);
            let error = match result {
                Err(error) if error.kind().passes() => error,
                result => return result,
            };
            match error.kind() {
                ErrorKind::Damaged => damaged += 1,
                ErrorKind::Throttled => pause_us = pause_us.max(PAUSE_US_THROTTLED),
                _ => {}
            }
            let drawn_us = pause_us / 2 + self.clock.random() % (pause_us / 2);
            if damaged == DAMAGED_MAX || now_us + drawn_us >= deadline_us {
                return Err(error);
            }
            self.pause(drawn_us)?;
            pause_us = (pause_us * 2).min(PAUSE_US_MAX);
        }
    }

    /// Waits, unless the store is closed meanwhile.
    fn pause(&self, us: u64) -> Result<()> {
        let mut left_us = us;
        while left_us > 0 {
            self.check_open()?;
            let slice_us = left_us.min(LOOK_US);
            self.clock.sleep_us(slice_us);
            left_us -= slice_us;
        }
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        match self.closes.load(Ordering::Acquire) {
            true => Err(is_closed()),
            false => Ok(()),
        }
    }

    fn wait_for_breaker(&self, deadline_us: u64) -> Result<()> {
        loop {
            self.check_open()?;
            let now_us = self.clock.now_us();
            let Admission::Wait(at_us) = self.health.admit(now_us) else {
                return Ok(());
            };
            if at_us >= deadline_us {
                let last = self.health.stats(now_us).last_error.unwrap_or_default();
                let text = format!("the object store is down; its last error: {last}");
                return Err(Error::new(ErrorKind::Unreachable, text));
            }
            self.clock.sleep_us((at_us - now_us).min(LOOK_US));
        }
    }
}

impl ObjectStore for Retrying {
    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let len = bytes.len() as u64;
        self.write(len, || self.store.put(name, bytes.clone()))
    }

    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew> {
        let mut may_be_ours = false;
        let created = self.write(bytes.len() as u64, || {
            let created = self.store.put_new(name, bytes.clone());
            may_be_ours |= matches!(&created, Err(e) if e.kind() == ErrorKind::Unreachable);
            created
        })?;
        if created == PutNew::Created || !may_be_ours {
            return Ok(created);
        }
        match self.get(name) {
            Ok(found) if found == bytes => Ok(PutNew::Created),
            Ok(_) => Ok(PutNew::Exists),
            Err(error) if error.kind() == ErrorKind::Absent => {
                let text = format!("{name} was there and is gone: nobody knows who made it");
                Err(Error::new(ErrorKind::Unreachable, text))
            }
            Err(error) => Err(error),
        }
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.read(0, || self.store.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let len = range.end.saturating_sub(range.start);
        self.read(len, || self.store.get_range(name, range.clone()))
    }

    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let lens = ranges
            .iter()
            .map(|range| range.end.saturating_sub(range.start));
        let len = lens.sum();
        self.read(len, || self.store.get_ranges(name, ranges))
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        self.read(0, || self.store.head(name))
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        self.read(0, || self.store.list_page(prefix, token))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.write(0, || self.store.delete(name))
    }

    fn begin_upload(&self, name: &str) -> Result<UploadId> {
        self.write(0, || self.store.begin_upload(name))
    }

    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag> {
        let len = bytes.len() as u64;
        self.write(len, || self.store.put_part(name, id, index, bytes.clone()))
    }

    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()> {
        self.write(0, || self.store.complete_upload(name, id, parts))
    }

    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()> {
        self.write(0, || self.store.abort_upload(name, id))
    }

    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
        self.read(0, || self.store.list_uploads_page(prefix, token))
    }

    fn close(&self) {
        self.closes.store(true, Ordering::Release);
        self.store.close();
    }
}

#[cfg(test)]
mod tests;
