//! The model: the committed state of one database, at each moment.
//!
//! Each event (a commit, a prepare, a change of the catalog or of a counter) gets a number, its
//! *moment*: 1, 2, 3 and so on. The model knows the state at every moment since the last recovery,
//! because a crash may bring back the state at the last acknowledged moment or at any later one.
//!
//! ```text
//! moment      1        2           3        4
//! event       put a=1  prepare x   put a=2  commit x (b=5)
//! durable     ----------------------^
//! ```
//!
//! After a power cut, moments 3 and 4 are allowed: `a=2` alone, with `x` still prepared, or `a=2`
//! and `b=5`. There are two acknowledged moments, because the commit durability decides which kind
//! of crash an event must survive: `durable` bounds a power cut, `written` (never before `durable`)
//! bounds a kill of the process.

use firn::base::value::OwnedValue;
use firn::base::{CounterValue, IndexId};
use std::collections::BTreeMap;

/// Number of an event; the state at a moment is the state after it.
pub type Moment = u64;

/// The writes of a commit: the last value of each key, `None` for a deletion.
pub type Writes = BTreeMap<Vec<u8>, Option<OwnedValue>>;

/// Counter values that a transaction persists: counter id and value.
pub type Raised = Vec<(u64, CounterValue)>;

/// An event that the log records.
#[derive(Debug, Clone)]
pub enum Event {
    /// A transaction committed in one step.
    Commit(Writes, Raised),
    /// First phase of a two-phase commit, with its xid.
    Prepare(Vec<u8>, Writes, Raised),
    /// The prepared transaction with this xid committed.
    CommitPrepared(Vec<u8>),
    /// The prepared transaction with this xid rolled back.
    RollbackPrepared(Vec<u8>),
    /// A table with these index ids was created.
    Create(String, Vec<IndexId>),
    /// A table was dropped.
    Drop(String),
    /// A table was renamed, from the first name to the second.
    Rename(String, String),
    /// A table was truncated and has these new index ids.
    Truncate(String, Vec<IndexId>),
    /// A counter was raised or set outside of a transaction.
    Counter(u64, CounterValue),
}

/// The state of the database without the entries of its indexes.
#[derive(Debug, Clone, Default)]
pub struct ModelCatalog {
    /// Prepared transactions without an outcome.
    pub prepared: BTreeMap<Vec<u8>, Writes>,
    /// Index ids of each table, by table name.
    pub tables: BTreeMap<String, Vec<IndexId>>,
    /// Dropped indexes, with the moment of the drop.
    pub dropped: BTreeMap<IndexId, Moment>,
    /// The least value that each counter must have.
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

    /// Applies `event`, whose moment is `at`. Returns the entries that it writes.
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

/// The model of one database; see the top of this file.
#[derive(Default)]
pub struct Model {
    /// Versions of each key, oldest first.
    data: BTreeMap<Vec<u8>, Vec<(Moment, Option<OwnedValue>)>>,
    /// The catalog at `base_at`.
    base: ModelCatalog,
    base_at: Moment,
    /// The events from moment `base_at + 1` on.
    events: Vec<Event>,
    now: ModelCatalog,
    /// A power cut must not take the state back before this moment.
    durable: Moment,
    /// A kill of the process must not take the state back before this moment.
    written: Moment,
    /// Whether the call of the last event has failed, so that its outcome is unknown.
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

    /// The catalog at the last moment.
    pub fn side(&self) -> &ModelCatalog {
        &self.now
    }

    /// The last moment that a power cut must preserve.
    pub fn durable(&self) -> Moment {
        self.durable
    }

    /// The last moment that a kill of the process must preserve.
    pub fn written(&self) -> Moment {
        self.written
    }

    /// Adds an event whose call has failed. The next recovery may bring it back; until then no
    /// read may show it.
    pub fn attempt(&mut self, event: Event) {
        self.record(event);
        self.attempted = true;
    }

    /// The last moment that reads may show: the last one, unless its call has failed.
    pub fn last_visible(&self) -> Moment {
        self.now() - u64::from(self.attempted)
    }

    /// Adds an event, unacknowledged, and returns its moment.
    pub fn record(&mut self, event: Event) -> Moment {
        let at = self.now() + 1;
        for (key, value) in self.now.apply(&event, at).unwrap_or_default() {
            self.data.entry(key).or_default().push((at, value));
        }
        self.events.push(event);
        at
    }

    /// Notes that from now on, everything up to `at` must survive a kill of the process.
    pub fn acknowledge_written(&mut self, at: Moment) {
        self.written = self.written.max(at);
    }

    /// Notes that from now on, everything up to `at` must survive a power cut, and so a kill.
    pub fn acknowledge(&mut self, at: Moment) {
        self.durable = self.durable.max(at);
        self.acknowledge_written(at);
    }

    /// The last moment whose event writes entries, catalog entries included; `base_at` if no later
    /// event does. Prepares, rollbacks and counters write to the log only.
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

    /// The catalog at a moment that is not before [`Self::base_at`].
    pub fn side_at(&self, at: Moment) -> ModelCatalog {
        let mut side = self.base.clone();
        for (event, moment) in self.events.iter().zip(self.base_at + 1..=at) {
            side.apply(event, moment);
        }
        side
    }

    /// Notes that a recovery brought back the state at `at`: forgets all later events.
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

    /// Forgets the versions that no read at `oldest` or later sees, and the events up to `oldest`.
    /// `oldest` must not be later than [`Self::durable`], so that no crash takes these events back.
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

/// The newest value at the moment `at`; `versions` are in ascending order.
fn newest(versions: &[(Moment, Option<OwnedValue>)], at: Moment) -> Option<&OwnedValue> {
    let seen = versions.partition_point(|(moment, _)| *moment <= at);
    versions[..seen].last()?.1.as_ref()
}

#[cfg(test)]
mod tests;
