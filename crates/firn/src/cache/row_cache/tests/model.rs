//! A model with seeds: the steps of commits, freezes, flushes, compactions and readers, in random
//! order. Each reader must get the result that it would get without the row cache. The tests also
//! break each rule of the protocol once, and check that the model detects it.

use super::super::cached_row::{CachedRow, RowVisibility};
use super::super::shard::{ShardLock, erase, raise, shard_of};
use super::super::*;
use crate::base::Kind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    None,
    /// A fill is refused if the reader's super version is sealed below the floor.
    Floor,
    /// The floor rises before the keys are erased.
    FloorFirst,
    /// The keys of the memtable are erased.
    Erase,
    /// A reader does not fill if it may have skipped versions that are newer than its snapshot.
    PassedOver,
    /// A row with seqno 0 counts as new as the newest commit in the sealed memtables.
    Zeroed,
    /// A super version that lacks a memtable which was sealed at the fill gets no hit.
    Memtable,
    /// A row is returned only to reads at its seqno or a later one.
    Visible,
    /// A memtable counts as sealed only after its last writer has left.
    Drained,
}

/// The versions of a key, newest first: seqno and value (`None`: a tombstone).
type Versions = Vec<(Seqno, Option<u64>)>;

#[derive(Default)]
struct Memtable {
    number: u64,
    /// This stands for an ingested run, which takes the number of a memtable. It is complete from
    /// the start, and its rows are erased by key range.
    run: bool,
    writers: Cell<u32>,
    entries: RefCell<BTreeMap<u8, Versions>>,
}

#[derive(Clone)]
struct View {
    /// The memtables, newest first; the first is the active one.
    memtables: Vec<Rc<Memtable>>,
    files: Rc<BTreeMap<u8, Versions>>,
    sealed: SealPoint,
}

fn newest(of: &BTreeMap<u8, Versions>, key: u8, seqno: Seqno) -> Option<(Seqno, Option<u64>)> {
    let versions = of.get(&key)?;
    versions.iter().find(|(at, _)| *at <= seqno).copied()
}

impl View {
    fn in_memtables(&self, key: u8, seqno: Seqno) -> Option<(Seqno, Option<u64>)> {
        let each = self.memtables.iter();
        each.map(|m| newest(&m.entries.borrow(), key, seqno))
            .find_map(|found| found)
    }
}

enum Flush {
    Drained,
    /// The flush is in step 2; the keys are those still to be erased.
    Second(Vec<u8>),
    Install,
}

/// A commit in progress, with the memtable into which it inserts.
struct Commit {
    seqno: Seqno,
    memtable: Rc<Memtable>,
    writes: Vec<(u8, Option<u64>)>,
    inserted: bool,
}

struct Reader {
    key: u8,
    /// The actor seldom takes its next step.
    slow: bool,
    view: View,
    seqno: Option<Seqno>,
    memtables_asked: bool,
    cache_asked: bool,
    from_files: Option<(Seqno, Option<u64>)>,
}

struct World {
    rng: StdRng,
    broken: Rule,
    cache: RowCache,
    view: View,
    last_seqno: Seqno,
    visible: Seqno,
    commits: Vec<Commit>,
    readers: Vec<Reader>,
    flush: Option<Flush>,
    hits: u64,
}

fn bytes(key: u8) -> [u8; 5] {
    [0, 0, 0, 1, key]
}

impl World {
    fn new(seed: u64, broken: Rule) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            broken,
            cache: RowCache::new(1 << 20),
            view: View {
                memtables: vec![Rc::new(Memtable {
                    number: 1,
                    ..Memtable::default()
                })],
                files: Rc::default(),
                sealed: SealPoint {
                    number: 0,
                    seqno: 0,
                },
            },
            last_seqno: 0,
            visible: 0,
            commits: Vec::new(),
            readers: Vec::new(),
            flush: None,
            hits: 0,
        }
    }

    /// Takes one random step. Returns false if a reader got another result than it would get
    /// without the row cache.
    fn step(&mut self) -> bool {
        match self.rng.random_range(0..20) {
            0..4 => self.commit(),
            4 if self.rng.random_bool(0.3) => self.ingest(),
            4 => self.freeze(),
            5..8 => self.flush(),
            8 => self.compact(),
            9..11 if self.readers.len() < 4 => {
                let reader = Reader {
                    key: self.rng.random_range(0..4),
                    slow: self.rng.random_bool(0.2),
                    view: self.view.clone(),
                    seqno: None,
                    memtables_asked: false,
                    cache_asked: false,
                    from_files: None,
                };
                self.readers.push(reader);
            }
            _ if !self.readers.is_empty() => return self.read(),
            _ => {}
        }
        true
    }

    fn commit(&mut self) {
        if self.commits.len() < 2 && self.rng.random_bool(0.5) {
            self.last_seqno += 1;
            let keys = self.rng.random_range(1..=2);
            let mut write = || {
                let value = self.rng.random_bool(0.8).then_some(self.last_seqno);
                (self.rng.random_range(0..4), value)
            };
            let mut writes: Vec<_> = (0..keys).map(|_| write()).collect();
            writes.dedup_by_key(|(key, _)| *key);
            let memtable = Rc::clone(&self.view.memtables[0]);
            memtable.writers.set(memtable.writers.get() + 1);
            self.commits.push(Commit {
                seqno: self.last_seqno,
                memtable,
                writes,
                inserted: false,
            });
        } else if !self.commits.is_empty() {
            let at = self.rng.random_range(0..self.commits.len());
            let commit = &mut self.commits[at];
            if !commit.inserted {
                commit.inserted = true;
                for &(key, value) in &commit.writes {
                    let mut entries = commit.memtable.entries.borrow_mut();
                    let versions = entries.entry(key).or_default();
                    versions.push((commit.seqno, value));
                    versions.sort_by_key(|(seqno, _)| std::cmp::Reverse(*seqno));
                }
                let writers = &commit.memtable.writers;
                writers.set(writers.get() - 1);
            } else if at == 0 {
                self.visible = commit.seqno;
                self.commits.remove(0);
            }
        }
    }

    fn freeze(&mut self) {
        if self.view.memtables.len() < 4 {
            let number = self.view.memtables[0].number + 1;
            let next = Memtable {
                number,
                ..Memtable::default()
            };
            self.view.memtables.insert(0, Rc::new(next));
            if self.broken == Rule::Drained {
                self.seal(Rc::clone(&self.view.memtables[1]));
            }
        }
    }

    /// Commits an ingested run above the active memtable. The active memtable is replaced, even if
    /// it is empty.
    fn ingest(&mut self) {
        if self.view.memtables.len() >= 3 || self.commits.len() >= 2 {
            return;
        }
        self.last_seqno += 1;
        let before = Rc::clone(&self.view.memtables[0]);
        if self.commits.is_empty() && before.entries.borrow().is_empty() {
            self.view.memtables.remove(0);
        }
        let first = self.rng.random_range(0..4);
        let mut entries = BTreeMap::new();
        for key in first..=self.rng.random_range(first..4) {
            let value = self.rng.random_bool(0.8).then_some(self.last_seqno);
            entries.insert(key, vec![(self.last_seqno, value)]);
        }
        let run = Rc::new(Memtable {
            number: before.number + 1,
            run: true,
            entries: RefCell::new(entries),
            ..Memtable::default()
        });
        let active = Memtable {
            number: before.number + 2,
            ..Memtable::default()
        };
        self.view.memtables.insert(0, Rc::clone(&run));
        self.view.memtables.insert(0, Rc::new(active));
        self.commits.push(Commit {
            seqno: self.last_seqno,
            memtable: run,
            writes: Vec::new(),
            inserted: true,
        });
    }

    fn seal(&mut self, memtable: Rc<Memtable>) {
        let entries = memtable.entries.borrow();
        let newest = entries.values().map(|versions| versions[0].0).max();
        self.view.sealed = SealPoint {
            number: memtable.number,
            seqno: self.view.sealed.seqno.max(newest.unwrap_or(0)),
        };
    }

    fn flush(&mut self) {
        let oldest = Rc::clone(self.view.memtables.last().unwrap());
        let (first, second) = match self.broken {
            Rule::FloorFirst => (false, true),
            _ => (true, false),
        };
        let raise = |cache: &RowCache| raise(&cache.shards, oldest.number);
        match self.flush.take() {
            None if self.view.memtables.len() > 1 && oldest.writers.get() == 0 => {
                self.seal(oldest);
                self.flush = Some(Flush::Drained);
            }
            None => {}
            Some(Flush::Drained) => {
                if first {
                    raise(&self.cache);
                }
                let keys = oldest.entries.borrow().keys().copied().collect();
                self.flush = Some(Flush::Second(keys));
            }
            Some(Flush::Second(mut keys)) => {
                if oldest.run && self.broken != Rule::Erase {
                    let (least, most) = (bytes(keys[0]), bytes(keys[keys.len() - 1]));
                    for shard in &self.cache.shards {
                        let named = |key: &[u8]| least.as_slice() <= key && key <= most.as_slice();
                        shard.with_mut(|shard| shard.erase_where(named));
                    }
                    keys.clear();
                }
                let next = keys.pop();
                if let Some(key) = next.filter(|_| self.broken != Rule::Erase) {
                    let hash = KeyHash::of(&bytes(key)).0;
                    erase(&self.cache.shards, std::iter::once(hash));
                }
                if keys.is_empty() && second {
                    raise(&self.cache);
                }
                self.flush = Some(match keys.is_empty() {
                    true => Flush::Install,
                    false => Flush::Second(keys),
                });
            }
            Some(Flush::Install) => {
                let mut files = (*self.view.files).clone();
                for (key, newer) in oldest.entries.borrow().iter() {
                    let all = files.entry(*key).or_default();
                    *all = newer.iter().chain(all.iter()).copied().collect();
                }
                self.view.memtables.pop();
                self.view.files = Rc::new(files);
            }
        }
    }

    /// A compaction into the last level: sets the seqno of versions that everybody sees to 0, and
    /// drops the versions that they hide.
    fn compact(&mut self) {
        let mut files = (*self.view.files).clone();
        for versions in files.values_mut() {
            if let Some(seen) = versions.iter().position(|(at, _)| *at <= self.visible) {
                versions.truncate(seen + 1);
                match versions[seen].1 {
                    Some(_) => versions[seen].0 = 0,
                    None => versions.truncate(seen),
                }
            }
        }
        files.retain(|_, versions| !versions.is_empty());
        self.view.files = Rc::new(files);
    }

    fn read(&mut self) -> bool {
        let at = self.rng.random_range(0..self.readers.len());
        let reader = &mut self.readers[at];
        if reader.slow && self.rng.random_bool(0.9) {
            return true;
        }
        let Some(seqno) = reader.seqno else {
            reader.seqno = Some(self.visible);
            return true;
        };
        let key = reader.key;
        let truth = |reader: &Reader| {
            let found = reader.view.in_memtables(key, seqno);
            found
                .or_else(|| newest(&reader.view.files, key, seqno))
                .and_then(|(_, value)| value)
        };
        if !reader.memtables_asked {
            reader.memtables_asked = true;
            if reader.view.in_memtables(key, seqno).is_some() {
                self.readers.remove(at);
            }
        } else if !reader.cache_asked {
            reader.cache_asked = true;
            let (mut bound, mut active) = (seqno, reader.view.memtables[0].number);
            match self.broken {
                Rule::Visible => bound = Seqno::MAX,
                Rule::Memtable => active = u64::MAX,
                _ => {}
            }
            let hash = KeyHash::of(&bytes(key));
            let hit = self
                .cache
                .get(hash, &bytes(key), bound, active, |_, value| {
                    u64::from_le_bytes(value.head.try_into().unwrap())
                });
            if let Some(value) = hit {
                self.hits += 1;
                let right = truth(reader) == Some(value);
                self.readers.remove(at);
                return right;
            }
        } else if reader.from_files.is_none() {
            reader.from_files = newest(&reader.view.files, key, seqno);
            if reader.from_files.is_none() {
                self.readers.remove(at);
            }
        } else {
            let reader = self.readers.remove(at);
            self.fill(&reader, seqno);
        }
        true
    }

    fn fill(&self, reader: &Reader, seqno: Seqno) {
        let (found, value) = reader.from_files.unwrap();
        let Some(value) = value.map(u64::to_le_bytes) else {
            return;
        };
        let (name, sealed) = (bytes(reader.key), reader.view.sealed);
        let key = InternalKey::new(&name, found, Kind::Put);
        let value = Value::split(&value, b"");
        let hash = KeyHash::of(&name);
        let direct = |number: u64, readers: RowVisibility| {
            let row = CachedRow::new(key, value, readers);
            shard_of(&self.cache.shards, hash.0).with_mut(|s| s.fill(number, hash.0, row));
        };
        match self.broken {
            Rule::Floor => direct(u64::MAX, readers(key, sealed)),
            Rule::PassedOver => direct(sealed.number, readers(key, sealed)),
            Rule::Zeroed if seqno >= sealed.seqno => direct(
                sealed.number,
                RowVisibility {
                    seqno: found,
                    memtable: sealed.number,
                },
            ),
            _ => {
                // Offer the row twice, because the second offer is admitted even if the cache is
                // full.
                self.cache.offer(hash, sealed, seqno, key, value);
                self.cache.offer(hash, sealed, seqno, key, value);
            }
        }
    }
}

const SEEDS: u64 = 600;
const STEPS: u32 = 3000;

/// Runs the model with all seeds. Returns the first seed with a wrong result, if any, and the
/// number of hits.
fn run(broken: Rule) -> (Option<u64>, u64) {
    let mut hits = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed, broken);
        for _ in 0..STEPS {
            if !world.step() {
                return (Some(seed), hits);
            }
        }
        hits += world.hits;
    }
    (None, hits)
}

#[test]
fn a_hit_is_what_the_reader_would_have_found() {
    let (wrong, hits) = run(Rule::None);
    assert_eq!(wrong, None, "seed that read something stale");
    assert!(hits > 5 * SEEDS, "{hits} hits: the model tests nothing");
}

#[test]
fn every_rule_is_needed() {
    for rule in [
        Rule::Floor,
        Rule::FloorFirst,
        Rule::Erase,
        Rule::PassedOver,
        Rule::Zeroed,
        Rule::Memtable,
        Rule::Visible,
        Rule::Drained,
    ] {
        assert!(run(rule).0.is_some(), "nobody misses {rule:?}");
    }
}
