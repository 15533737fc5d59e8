//! The model: everything that was committed, moment by moment.
//!
//! Each event (a commit, a prepare, a change of the catalog) is a *moment*: 1, 2, 3 and so on.
//! The history knows the state after every moment since the last recovery, because a crash may
//! bring back any of them that is not older than what was acknowledged.

use firn::base::value::OwnedValue;
use firn::base::{CounterValue, IndexId};
use std::collections::BTreeMap;

/// Number of an event; the state at a moment is the state after it.
pub type Moment = u64;

/// What a commit writes: the last value of each key, `None` for a deletion.
pub type Writes = BTreeMap<Vec<u8>, Option<OwnedValue>>;

/// What to persist of counters.
pub type Raised = Vec<(u64, CounterValue)>;

/// Something that the log records.
#[derive(Debug, Clone)]
pub enum Event {
    /// A transaction committed in one step.
    Commit(Writes, Raised),
    /// First phase of a two-phase commit.
    Prepare(Vec<u8>, Writes, Raised),
    /// Its good end.
    CommitPrepared(Vec<u8>),
    /// Its other end.
    RollbackPrepared(Vec<u8>),
    /// A table with these index ids was made.
    Create(String, Vec<IndexId>),
    /// It was dropped.
    Drop(String),
    /// It was renamed.
    Rename(String, String),
    /// It was emptied, and has these index ids now.
    Truncate(String, Vec<IndexId>),
    /// A counter was raised or set by itself.
    Counter(u64, CounterValue),
}

/// Everything but the entries themselves.
#[derive(Debug, Clone, Default)]
pub struct ModelCatalog {
    /// Prepared transactions without an outcome.
    pub prepared: BTreeMap<Vec<u8>, Writes>,
    /// Index ids of the tables.
    pub tables: BTreeMap<String, Vec<IndexId>>,
    /// When indexes were dropped.
    pub dropped: BTreeMap<IndexId, Moment>,
    /// Acknowledged values of counters.
    pub counters: BTreeMap<u64, CounterValue>,
}

impl ModelCatalog {
    fn raise(&mut self, raised: &[(u64, CounterValue)]) {
        for &(counter, value) in raised {
            let slot = self.counters.entry(counter).or_default();
            *slot = value.max(*slot);
        }
    }

    fn drop_ids(&mut self, ids: Vec<IndexId>, at: Moment) {
        self.dropped.extend(ids.into_iter().map(|id| (id, at)));
    }

    /// Applies `event`, which happened `at` this moment. Returns what it writes.
    fn apply(&mut self, event: &Event, at: Moment) -> Option<Writes> {
        match event {
            Event::Commit(writes, raised) => {
                self.raise(raised);
                return Some(writes.clone());
            }
            Event::Prepare(xid, writes, raised) => {
                self.raise(raised);
                self.prepared.insert(xid.clone(), writes.clone());
            }
            Event::CommitPrepared(xid) => return self.prepared.remove(xid),
            Event::RollbackPrepared(xid) => {
                self.prepared.remove(xid);
            }
            Event::Create(name, ids) => {
                self.tables.insert(name.clone(), ids.clone());
            }
            Event::Drop(name) => {
                let ids = self.tables.remove(name).unwrap_or_default();
                self.drop_ids(ids, at);
            }
            Event::Rename(from, to) => {
                let ids = self.tables.remove(from).unwrap_or_default();
                self.tables.insert(to.clone(), ids);
            }
            Event::Truncate(name, ids) => {
                let old = self.tables.insert(name.clone(), ids.clone());
                self.drop_ids(old.unwrap_or_default(), at);
            }
            Event::Counter(counter, value) => self.raise(&[(*counter, *value)]),
        }
        None
    }
}

/// The history of one database.
#[derive(Default)]
pub struct Model {
    /// Versions of each key, oldest first.
    data: BTreeMap<Vec<u8>, Vec<(Moment, Option<OwnedValue>)>>,
    base: ModelCatalog,
    base_at: Moment,
    /// The event at `base_at + 1` and those after it.
    events: Vec<Event>,
    now: ModelCatalog,
    /// The last moment that a power cut must leave.
    durable: Moment,
    /// The last moment that a kill of the process must leave.
    written: Moment,
    /// The last event is one whose call has failed.
    attempted: bool,
}

impl Model {
    /// The moment of the last event.
    pub fn now(&self) -> Moment {
        self.base_at + self.events.len() as u64
    }

    /// The first moment whose state is still known.
    pub fn base_at(&self) -> Moment {
        self.base_at
    }

    /// The state beside the entries, now.
    pub fn side(&self) -> &ModelCatalog {
        &self.now
    }

    /// The last moment that a power cut must leave.
    pub fn durable(&self) -> Moment {
        self.durable
    }

    /// The last moment that a kill of the process must leave.
    pub fn written(&self) -> Moment {
        self.written
    }

    /// Adds an event whose call has failed: a crash may bring it back, no read may show it before.
    pub fn attempt(&mut self, event: Event) {
        self.record(event);
        self.attempted = true;
    }

    /// The last moment that reads may show when a call has failed.
    pub fn last_visible(&self) -> Moment {
        self.now() - u64::from(self.attempted)
    }

    /// Adds an event; nothing is acknowledged yet.
    pub fn record(&mut self, event: Event) -> Moment {
        let at = self.now() + 1;
        for (key, value) in self.now.apply(&event, at).unwrap_or_default() {
            self.data.entry(key).or_default().push((at, value));
        }
        self.events.push(event);
        at
    }

    /// Everything up to `at` survives a kill of the process.
    pub fn acknowledge_written(&mut self, at: Moment) {
        self.written = self.written.max(at);
    }

    /// Everything up to `at` survives a power cut.
    pub fn acknowledge(&mut self, at: Moment) {
        self.durable = self.durable.max(at);
        self.acknowledge_written(at);
    }

    /// The last moment, up to now, at which entries were written.
    pub fn last_write(&self) -> Moment {
        let writes = |event: &Event| !matches!(event, Event::Prepare(..) | Event::Counter(..));
        let last = self
            .events
            .iter()
            .rposition(|event| writes(event) && !matches!(event, Event::RollbackPrepared(_)));
        last.map_or(self.base_at, |i| self.base_at + 1 + i as u64)
    }

    /// The value of `key` at a moment.
    pub fn get(&self, key: &[u8], at: Moment) -> Option<&OwnedValue> {
        newest(self.data.get(key)?, at)
    }

    /// Entries with `lower ≤ key < upper` at a moment.
    pub fn range<'a>(
        &'a self,
        lower: &[u8],
        upper: &[u8],
        at: Moment,
    ) -> impl Iterator<Item = (&'a [u8], &'a OwnedValue)> {
        let range = self.data.range(lower.to_vec()..upper.to_vec());
        range.filter_map(move |(key, versions)| Some((&key[..], newest(versions, at)?)))
    }

    /// The state beside the entries at a moment since the last recovery.
    pub fn side_at(&self, at: Moment) -> ModelCatalog {
        let mut side = self.base.clone();
        for (event, moment) in self.events.iter().zip(self.base_at + 1..=at) {
            side.apply(event, moment);
        }
        side
    }

    /// A recovery brought back the state at `at`: what came later never was.
    pub fn recovered(&mut self, at: Moment) {
        self.base = self.side_at(at);
        self.base_at = at;
        self.now = self.base.clone();
        self.events.clear();
        self.durable = at;
        self.written = at;
        self.attempted = false;
        self.data.retain(|_, versions| {
            versions.retain(|(moment, _)| *moment <= at);
            !versions.is_empty()
        });
    }

    /// Forgets versions that no read at `oldest` or later sees, and events that no crash can take
    /// back. `oldest` must not be later than what is durable.
    pub fn forget_before(&mut self, oldest: Moment) {
        debug_assert!(oldest <= self.durable);
        self.data.retain(|_, versions| {
            let newest = versions.partition_point(|(moment, _)| *moment <= oldest);
            versions.drain(..newest.saturating_sub(1));
            !matches!(versions[..], [(moment, None)] if moment <= oldest)
        });
        if oldest > self.base_at {
            self.base = self.side_at(oldest);
            self.events.drain(..(oldest - self.base_at) as usize);
            self.base_at = oldest;
        }
    }
}

fn newest(versions: &[(Moment, Option<OwnedValue>)], at: Moment) -> Option<&OwnedValue> {
    let seen = versions.partition_point(|(moment, _)| *moment <= at);
    versions[..seen].last()?.1.as_ref()
}

#[cfg(test)]
mod tests;
