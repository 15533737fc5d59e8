//! Random requests, compared with a simple model: holders, queues, the order of grants, and whether
//! each reported deadlock was a cycle.

use super::script::{Session, wait_until_idle};
use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default, Debug)]
struct Lock {
    holders: BTreeMap<u64, LockMode>,
    queue: Vec<(u64, LockMode)>,
}

impl Lock {
    fn free_for(&self, owner: u64, mode: LockMode) -> bool {
        let mut others = self.holders.iter().filter(|(other, _)| **other != owner);
        others.all(|(_, held)| !held.conflicts(mode))
    }

    /// The result of a request that need not wait; `None` if it has to.
    fn attempt(&mut self, owner: u64, mode: LockMode) -> Option<&'static str> {
        let held = self.holders.get(&owner).copied();
        if held >= Some(mode) {
            return Some("held");
        }
        if !self.free_for(owner, mode) || (held.is_none() && !self.queue.is_empty()) {
            return None;
        }
        self.holders.insert(owner, mode);
        Some(if held.is_some() { "held" } else { "granted" })
    }

    fn enqueue(&mut self, owner: u64, mode: LockMode) {
        let upgrade = |holders: &BTreeMap<u64, LockMode>, owner| holders.contains_key(owner);
        let at = match upgrade(&self.holders, &owner) {
            true => {
                let ahead = self.queue.iter();
                ahead
                    .take_while(|(other, _)| upgrade(&self.holders, other))
                    .count()
            }
            false => self.queue.len(),
        };
        self.queue.insert(at, (owner, mode));
    }

    /// Grants requests from the front of the queue. Returns each owner and its result.
    fn grant(&mut self) -> Vec<(u64, &'static str)> {
        let mut granted = Vec::new();
        while let Some(&(owner, mode)) = self.queue.first() {
            if !self.free_for(owner, mode) {
                break;
            }
            self.queue.remove(0);
            let upgraded = self.holders.insert(owner, mode).is_some();
            granted.push((owner, if upgraded { "upgraded" } else { "granted" }));
        }
        granted
    }

    fn blockers(&self, owner: u64) -> BTreeSet<u64> {
        let at = self.queue.iter().position(|(other, _)| *other == owner);
        let at = at.expect("it waits");
        let mode = self.queue[at].1;
        let ahead = self.queue[..at].iter().copied();
        let holders = self.holders.iter().map(|(owner, mode)| (*owner, *mode));
        let all = ahead.chain(holders);
        all.filter(|(other, held)| *other != owner && held.conflicts(mode))
            .map(|(other, _)| other)
            .collect()
    }
}

#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Lock>);

impl Model {
    fn waits(&self) -> BTreeMap<u64, BTreeSet<u64>> {
        let waiting = self.0.values().flat_map(|lock| {
            let owners = lock.queue.iter().map(|(owner, _)| *owner);
            owners.map(|owner| (owner, lock.blockers(owner)))
        });
        waiting.collect()
    }

    fn in_cycle(&self, start: u64) -> bool {
        let waits = self.waits();
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(owner) = open.pop() {
            for next in waits.get(&owner).into_iter().flatten() {
                if reached.insert(*next) {
                    open.push(*next);
                }
            }
        }
        reached.contains(&start)
    }

    fn leave(&mut self, owner: u64) {
        for lock in self.0.values_mut() {
            lock.queue.retain(|(other, _)| *other != owner);
        }
    }

    fn grant_all(&mut self) -> BTreeMap<u64, String> {
        let granted = self.0.values_mut().flat_map(Lock::grant);
        granted.map(|(owner, what)| (owner, what.into())).collect()
    }
}

const OWNERS: u64 = 6;

fn key(rng: &mut StdRng, from: &mut u8) -> Vec<u8> {
    // Often take the next key, so that series of neighbouring keys arise.
    *from = match rng.random_bool(0.6) {
        true => (*from + 1) % 24,
        false => rng.random_range(0..24),
    };
    vec![0, 0, 0, 7 + *from % 2 * 64, 0, *from / 2]
}

fn run(seed: u64, merge_at: usize, steps: usize) -> [usize; 4] {
    let mut rng = StdRng::seed_from_u64(seed);
    let table = LockTable::merging_at(merge_at);
    let mut model = Model::default();
    let mut next = 0;
    let mut counts = [0; 4];
    std::thread::scope(|scope| {
        let mut sessions: BTreeMap<_, _> = (1..=OWNERS)
            .map(|id| (id, Session::spawn(scope, &table, id)))
            .collect();
        for step in 0..steps {
            let at = format!("seed {seed}, merging at {merge_at}, step {step}");
            let id = rng.random_range(1..=OWNERS);
            let session = sessions.get_mut(&id).unwrap();
            let mut expected = BTreeMap::new();
            if session.outstanding {
                if rng.random_bool(0.7) {
                    continue;
                }
                session.owner.interrupt();
                model.leave(id);
                expected = model.grant_all();
                expected.insert(id, "interrupted".to_string());
                counts[0] += 1;
                let happened = wait_until_idle(&table, &mut sessions);
                assert_eq!(happened, expected, "{at}: {id} is killed");
                sessions[&id].owner.clear_interrupt();
                continue;
            }
            let what = rng.random_range(0..100);
            if what < 70 {
                let key = key(&mut rng, &mut next);
                let mode = match rng.random_bool(0.4) {
                    true => LockMode::Shared,
                    false => LockMode::Exclusive,
                };
                let policy = match rng.random_bool(0.7) {
                    true => LONG,
                    false => WaitPolicy::NoWait,
                };
                let request = (key.clone(), mode, policy);
                session.requests.send(request).unwrap();
                session.outstanding = true;
                let happened = wait_until_idle(&table, &mut sessions);
                let at = format!("{at}: {id} {mode:?} {key:?}");
                let lock = model.0.entry(key).or_default();
                if let Some(result) = lock.attempt(id, mode) {
                    expected.insert(id, result.to_string());
                } else if policy == WaitPolicy::NoWait {
                    expected.insert(id, ErrorKind::LockNotAvailable.words().to_string());
                    counts[1] += 1;
                } else {
                    lock.enqueue(id, mode);
                    counts[2] += 1;
                    // The model has no weights, so it does not predict the victim, but checks that
                    // the victim is in a cycle.
                    let deadlock = ErrorKind::Deadlock.words();
                    for (victim, result) in &happened {
                        if result == deadlock {
                            assert!(model.in_cycle(*victim), "{at}: {victim} in no cycle");
                            expected.insert(*victim, deadlock.to_string());
                            counts[3] += 1;
                        }
                    }
                    let victims: Vec<_> = expected.keys().copied().collect();
                    victims.iter().for_each(|victim| model.leave(*victim));
                    expected.append(&mut model.grant_all());
                }
                assert_eq!(happened, expected, "{at}");
                for id in 1..=OWNERS {
                    assert!(!model.in_cycle(id), "{at}: a deadlock was missed");
                }
            } else if what < 85 {
                let held = model.0.iter().filter(|(_, l)| l.holders.contains_key(&id));
                let held: Vec<_> = held.map(|(key, _)| key.clone()).collect();
                if !held.is_empty() {
                    let key = &held[rng.random_range(0..held.len())];
                    // The owner has no outstanding request, so it does not wait for an upgrade of
                    // this lock.
                    assert!(table.release(&session.owner, key), "{at}");
                    model.0.get_mut(key).unwrap().holders.remove(&id);
                    expected = model.grant_all();
                    assert_eq!(
                        wait_until_idle(&table, &mut sessions),
                        expected,
                        "{at}: unlock"
                    );
                }
            } else if what < 92 {
                session.owner.set_changed_rows(rng.random_range(0..4));
            } else {
                table.release_all(&session.owner);
                for lock in model.0.values_mut() {
                    lock.holders.remove(&id);
                }
                expected = model.grant_all();
                assert_eq!(
                    wait_until_idle(&table, &mut sessions),
                    expected,
                    "{at}: rollback"
                );
            }
            for (id, session) in &sessions {
                let mut held = 0;
                for (key, lock) in &model.0 {
                    let mode = lock.holders.get(id).copied();
                    held += usize::from(mode.is_some());
                    assert_eq!(table.holds(&session.owner, key), mode, "{at}: {id} {key:?}");
                }
                assert_eq!(session.owner.locks_held(), held, "{at}");
            }
            let blocked = table.waits().into_iter();
            let blocked: BTreeMap<u64, BTreeSet<u64>> = blocked
                .map(|wait| (wait.owner, wait.blockers.into_iter().collect()))
                .collect();
            assert_eq!(blocked, model.waits(), "{at}");
            let rows: u64 = table.locks(1000).iter().map(|lock| lock.rows).sum();
            let holders: usize = model.0.values().map(|lock| lock.holders.len()).sum();
            assert_eq!(rows, holders as u64, "{at}");
        }
        for session in sessions.values() {
            session.owner.interrupt();
        }
        wait_until_idle(&table, &mut sessions);
        for session in sessions.values() {
            table.release_all(&session.owner);
        }
        assert!(table.locks(1).is_empty() && table.waits().is_empty());
    });
    counts
}

#[test]
fn it_does_what_the_reference_does() {
    let mut sum = [0; 4];
    for seed in 0..24 {
        let merge_at = [0, 1, 2, 3, 5, 4096][seed % 6];
        let counts = run(seed as u64, merge_at, 700);
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    assert!(sum.iter().all(|count| *count > 20), "{sum:?}");
}
