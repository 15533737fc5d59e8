//! Random waits for rows and gaps; each search for a cycle is compared with a walk through the full
//! wait-for graph, in which a request waits for all conflicting requests ahead and all holders.
//!
//! One thread plays all owners, so a round takes microseconds: a request that has to wait joins its
//! queue and is searched, and never sleeps. An owner whose request has an outcome wakes up some
//! steps later, as a session's thread does.

use super::*;
use crate::txn::lock_table::lock_request::{LockRequest, WaitOutcome};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

const OWNERS: u64 = 10;
const ROWS: u8 = 5;
/// Tables for which owners wait while DDL has closed them.
const TABLES: IndexId = 3;

/// The owners that each owner waits for, by id.
type Graph = BTreeMap<u64, BTreeSet<u64>>;

/// How often something happened.
#[derive(Debug, Default)]
struct Counts {
    cycles: usize,
    gap_cycles: usize,
    long_cycles: usize,
    shared_in_cycles: usize,
    upgrades_in_cycles: usize,
    no_cycles: usize,
    waited_for_by_users: usize,
    not_waited_for_by_users: usize,
}

struct Play {
    table: LockTable,
    owners: Vec<Arc<LockOwner>>,
    /// The owners that rely on each table.
    relying: BTreeMap<IndexId, Vec<Arc<LockOwner>>>,
    rng: StdRng,
    counts: Counts,
    at: String,
}

/// A row, or a key in a gap, of the same index: a gap between rows and an insert into it.
fn key(number: u8) -> Vec<u8> {
    vec![0, 0, 0, 7, number]
}

impl Play {
    fn new(seed: u64, merge_at: usize) -> Self {
        Self {
            table: LockTable::merging_at(merge_at),
            owners: (1..=OWNERS).map(|id| LockOwner::new(id, 0)).collect(),
            relying: BTreeMap::new(),
            rng: StdRng::seed_from_u64(seed),
            counts: Counts::default(),
            at: format!("seed {seed}, merging at {merge_at}"),
        }
    }

    /// All blockers of a request, without the search's shortcuts.
    fn blockers(&self, waiter: &Arc<LockRequest>) -> BTreeSet<u64> {
        if waiter.outcome() != WaitOutcome::Waiting {
            return BTreeSet::new();
        }
        let blockers = match waiter.for_gap {
            true => self.table.gaps.blockers(waiter),
            false => {
                let rows = self.table.shard(&waiter.key).rows.lock();
                rows.map[&waiter.key].blockers(waiter)
            }
        };
        blockers.iter().map(|owner| owner.id()).collect()
    }

    fn graph(&self) -> Graph {
        let waiting = self.owners.iter().filter_map(|owner| owner.waiting());
        waiting
            .map(|waiter| (waiter.owner.id(), self.blockers(&waiter)))
            .collect()
    }

    /// Ends the wait of `owner`, as its thread would, if its request has an outcome. Returns
    /// whether the owner waits no more.
    fn wakes(&self, owner: &Arc<LockOwner>) -> bool {
        let Some(waiter) = owner.waiting() else {
            return true;
        };
        match waiter.outcome() {
            WaitOutcome::Waiting => return false,
            WaitOutcome::Granted if !waiter.upgrade && !waiter.for_gap => {
                owner.held.lock().keys.push(Arc::clone(&waiter.key));
            }
            _ => {}
        }
        owner.set_waiting(None);
        true
    }

    /// Breaks the cycles through `waiter`, and compares each search with the full graph.
    fn search(&mut self, waiter: &Arc<LockRequest>) {
        while waiter.outcome() == WaitOutcome::Waiting {
            let graph = self.graph();
            let id = waiter.owner.id();
            let found = self.table.find_cycle(waiter);
            let Some(cycle) = found else {
                self.counts.no_cycles += 1;
                return;
            };
            assert!(reaches(&graph, id, id), "{}: {id} is in no cycle", self.at);
            self.counts.cycles += 1;
            self.counts.gap_cycles += usize::from(cycle.iter().any(|w| w.for_gap));
            self.counts.long_cycles += usize::from(cycle.len() > 3);
            let shared = cycle.iter().any(|w| w.mode == LockMode::Shared);
            self.counts.shared_in_cycles += usize::from(shared);
            self.counts.upgrades_in_cycles += usize::from(cycle.iter().any(|w| w.upgrade));
            let members: Vec<u64> = cycle.iter().map(|w| w.owner.id()).collect();
            assert_eq!(members[0], id, "{}: another search", self.at);
            let next = members.iter().cycle().skip(1);
            for (one, other) in members.iter().zip(next) {
                let waits = graph[one].contains(other);
                assert!(waits, "{}: {one} does not wait for {other}", self.at);
            }
            // Any member ends the cycle as its victim.
            let victim = cycle.choose(&mut self.rng).expect("the requester at least");
            let outcome = self.table.decide(victim, WaitOutcome::Victim);
            assert_eq!(outcome, WaitOutcome::Victim);
            // Its session may take a while to wake up and to roll back.
            if self.rng.random() && self.wakes(&victim.owner) && self.rng.random() {
                self.table.release_all(&victim.owner);
            }
        }
    }

    fn assert_no_cycle(&self) {
        let graph = self.graph();
        for id in graph.keys() {
            assert!(!reaches(&graph, *id, *id), "{}: missed {id}", self.at);
        }
    }

    /// Locks a row or inserts into a gap; a request that has to wait joins its queue. Returns it.
    fn request(&mut self, owner: &Arc<LockOwner>) -> Option<Arc<LockRequest>> {
        let number = self.rng.random_range(0..ROWS);
        let waiter = if self.rng.random_bool(0.2) {
            self.table.gaps.enqueue(owner, &key(number))?
        } else {
            let mode = match self.rng.random_bool(0.5) {
                true => LockMode::Shared,
                false => LockMode::Exclusive,
            };
            let key = key(number);
            if self.table.try_acquire(owner, &key, mode) {
                return None;
            }
            let (shard, registry) = (self.table.shard(&key), &self.table.registry);
            let Err(waiter) =
                shard.attempt_or_enqueue(registry, owner, &key, mode, WaitReports::All)
            else {
                panic!("nobody has released it since");
            };
            waiter
        };
        owner.set_waiting(Some(Arc::clone(&waiter)));
        Some(waiter)
    }

    fn step(&mut self, detects: bool) {
        let owner = Arc::clone(self.owners.choose(&mut self.rng).expect("there are some"));
        if !self.wakes(&owner) {
            // A timeout.
            if self.rng.random_bool(0.1) {
                let waiter = owner.waiting().expect("it waits");
                self.table.decide(&waiter, WaitOutcome::Left);
            }
            return;
        }
        match self.rng.random_range(0..20) {
            0 => {
                let (a, b) = (self.rng.random_range(0..ROWS), self.rng.random_range(1..3));
                self.table.lock_gap(&owner, &key(a), &key(a + b));
            }
            1 => self.table.release_all(&owner),
            2 => {
                let held = owner.held.lock().keys.clone();
                if let Some(key) = held.choose(&mut self.rng) {
                    self.table.release(&owner, key);
                }
            }
            _ => {
                if let Some(waiter) = self.request(&owner).filter(|_| detects) {
                    self.search(&waiter);
                }
            }
        }
    }

    /// Lets owners rely on tables and wait for them, and compares whether the users of a table wait
    /// for an owner.
    fn compare_users(&mut self) {
        for table in 1..=TABLES {
            let mut owners = self.owners.clone();
            owners.retain(|_| self.rng.random_bool(0.2));
            self.relying.insert(table, owners);
        }
        for owner in &self.owners {
            let table = self.rng.random_range(1..=2 * TABLES);
            let awaits = owner.waiting().is_none() && table <= TABLES;
            owner.set_awaits(awaits.then_some(table));
        }
        let ids = |table| self.relying[&table].iter().map(|owner| owner.id());
        let mut graph = self.graph();
        for owner in &self.owners {
            if let Some(table) = owner.awaits() {
                graph.insert(owner.id(), ids(table).collect());
            }
        }
        for owner in self.owners.iter().filter(|o| o.waiting().is_none()) {
            for table in 1..=TABLES {
                let relying = |table| self.relying[&table].clone();
                let found = self.table.is_waited_for_by_users(owner, table, relying);
                let id = owner.id();
                let right = ids(table).any(|user| user == id || reaches(&graph, user, id));
                assert_eq!(found, right, "{}: users of {table} and {id}", self.at);
                match found {
                    true => self.counts.waited_for_by_users += 1,
                    false => self.counts.not_waited_for_by_users += 1,
                }
            }
        }
        self.owners.iter().for_each(|owner| owner.set_awaits(None));
    }
}

/// Whether a path of at least one edge leads from `from` to `to`.
fn reaches(graph: &Graph, from: u64, to: u64) -> bool {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(owner) = left.pop() {
        for next in graph.get(&owner).into_iter().flatten() {
            if reached.insert(*next) {
                left.push(*next);
            }
        }
    }
    reached.contains(&to)
}

fn play(seed: u64) -> Counts {
    let mut play = Play::new(seed, [0, 1, 3, 4096][seed as usize % 4]);
    for _ in 0..40 {
        play.step(true);
        play.assert_no_cycle();
    }
    play.compare_users();
    // Waits that begin without a search, which searches of all waits find later.
    for _ in 0..20 {
        play.step(false);
    }
    for waiter in play.table.all_waiters() {
        play.search(&waiter);
    }
    play.assert_no_cycle();
    play.counts
}

#[test]
fn searches_find_the_cycles_of_the_full_graph() {
    let mut sum = Counts::default();
    for seed in 0..6000 {
        let counts = play(seed);
        sum.cycles += counts.cycles;
        sum.gap_cycles += counts.gap_cycles;
        sum.long_cycles += counts.long_cycles;
        sum.shared_in_cycles += counts.shared_in_cycles;
        sum.upgrades_in_cycles += counts.upgrades_in_cycles;
        sum.no_cycles += counts.no_cycles;
        sum.waited_for_by_users += counts.waited_for_by_users;
        sum.not_waited_for_by_users += counts.not_waited_for_by_users;
    }
    println!("{sum:?}");
    let all = [
        sum.cycles,
        sum.gap_cycles,
        sum.long_cycles,
        sum.shared_in_cycles,
        sum.upgrades_in_cycles,
        sum.no_cycles,
        sum.waited_for_by_users,
        sum.not_waited_for_by_users,
    ];
    assert!(all.iter().all(|count| *count > 500), "{sum:?}");
}

/// A search lists the holders of a row once, however many requests for it the search meets.
#[test]
fn a_search_lists_the_holders_of_a_row_once() {
    use crate::base::work_count::counted;
    const MANY: u64 = 2000;
    let table = LockTable::merging_at(4096);
    let owners: Vec<_> = (0..2 * MANY).map(|id| LockOwner::new(id + 1, 0)).collect();
    let (first, second) = owners.split_at(MANY as usize);
    // Those of the first half hold one row, those of the second half another one.
    for (row, half) in [(0, first), (1, second)] {
        for owner in half {
            assert!(table.try_acquire(owner, &key(row), LockMode::Shared));
        }
    }
    let wait = |owner: &Arc<LockOwner>, row| {
        let (shard, registry) = (table.shard(&key(row)), &table.registry);
        let mode = LockMode::Exclusive;
        let Err(waiter) =
            shard.attempt_or_enqueue(registry, owner, &key(row), mode, WaitReports::All)
        else {
            panic!("others hold it");
        };
        owner.set_waiting(Some(Arc::clone(&waiter)));
        waiter
    };
    // All of the first half wait for the second half.
    first.iter().for_each(|owner| _ = wait(owner, 1));
    let other = LockOwner::new(1 << 40, 0);
    let waiter = wait(&other, 0);
    let (found, work) = counted(|| table.find_cycle(&waiter));
    assert!(found.is_none());
    assert!(work.holders <= 4 * MANY, "{work:?}");
}
