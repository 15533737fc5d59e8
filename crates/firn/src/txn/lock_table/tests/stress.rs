//! Many threads lock few keys, and a checker verifies that granted locks exclude each other.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::AtomicI64;

const KEYS: usize = 6;

/// For each key: the number of shared holders, or -1 for an exclusive one.
struct Checker([AtomicI64; KEYS]);

impl Checker {
    fn enter(&self, key: usize, before: Option<LockMode>, now: LockMode) {
        let state = &self.0[key];
        match (before, now) {
            (None, LockMode::Shared) => {
                let found = state.fetch_add(1, Ordering::SeqCst);
                assert!(found >= 0, "shared beside exclusive on {key}");
            }
            (None, LockMode::Exclusive) => {
                let found = state.compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
                assert_eq!(found, Ok(0), "exclusive beside others on {key}");
            }
            (Some(LockMode::Shared), LockMode::Exclusive) => {
                let found = state.compare_exchange(1, -1, Ordering::SeqCst, Ordering::SeqCst);
                assert_eq!(found, Ok(1), "upgraded beside others on {key}");
            }
            _ => {}
        }
    }

    fn exit(&self, key: usize, held: LockMode) {
        match held {
            LockMode::Shared => assert!(self.0[key].fetch_sub(1, Ordering::SeqCst) > 0),
            LockMode::Exclusive => assert_eq!(self.0[key].swap(0, Ordering::SeqCst), -1),
        }
    }
}

fn transaction(
    table: &LockTable,
    owner: &Arc<LockOwner>,
    checker: &Checker,
    rng: &mut StdRng,
) -> bool {
    let mut held: HashMap<usize, LockMode> = HashMap::new();
    let mut survived = true;
    for _ in 0..rng.random_range(1..6) {
        let key = rng.random_range(0..KEYS);
        let name = [b'k', key as u8];
        if rng.random_bool(0.15) {
            if let Some(mode) = held.remove(&key) {
                checker.exit(key, mode);
                assert!(table.release(owner, &name));
            }
            continue;
        }
        let mode = match rng.random_bool(0.5) {
            true => LockMode::Shared,
            false => LockMode::Exclusive,
        };
        let policy = match rng.random_range(0..10) {
            0 => WaitPolicy::NoWait,
            1..=2 => WaitPolicy::Wait { timeout_micros: 20 },
            _ => LONG,
        };
        match table.acquire(owner, &name, mode, policy) {
            Ok(granted) => {
                let before = held.get(&key).copied();
                assert_eq!(granted.newly, before.is_none());
                let now = before.map_or(mode, |before| before.max(mode));
                checker.enter(key, before, now);
                held.insert(key, now);
                if rng.random_bool(0.3) {
                    std::thread::yield_now();
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::Deadlock => {
                    survived = false;
                    break;
                }
                ErrorKind::LockNotAvailable => assert_eq!(policy, WaitPolicy::NoWait),
                ErrorKind::LockTimeout => assert_ne!(policy, LONG, "a deadlock was missed"),
                ErrorKind::Interrupted => {
                    owner.clear_interrupt();
                    survived = false;
                    break;
                }
                other => panic!("{other:?}"),
            },
        }
        assert_eq!(owner.locks_held(), held.len());
        owner.set_changed_rows(rng.random_range(0..4));
    }
    for (key, mode) in held {
        assert_eq!(table.holds(owner, &[b'k', key as u8]), Some(mode));
        checker.exit(key, mode);
    }
    table.release_all(owner);
    survived
}

#[test]
fn random_transactions_never_break_a_lock() {
    for (seed, rows) in [(0, 4096), (1, 0), (2, 1), (3, 4096), (4, 0), (5, 2)] {
        println!("seed {seed}, merging at {rows}");
        let table = LockTable::merging_at(rows);
        let checker = Checker([const { AtomicI64::new(0) }; KEYS]);
        let owners: Vec<_> = (0..6).map(|id| LockOwner::new(id, 0)).collect();
        let survivors: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = owners
                .iter()
                .map(|owner| {
                    let (table, checker, owners) = (&table, &checker, &owners);
                    scope.spawn(move || {
                        let mut rng = StdRng::seed_from_u64(seed as u64 * 100 + owner.id());
                        let mut survived = 0;
                        for _ in 0..1500 {
                            survived += u32::from(transaction(table, owner, checker, &mut rng));
                            if rng.random_bool(0.02) {
                                owners[rng.random_range(0..owners.len())].interrupt();
                            }
                        }
                        survived
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert!(survivors > 0, "seed {seed}");
        assert!(table.locks(1).is_empty(), "seed {seed}");
        assert!(table.waits().is_empty(), "seed {seed}");
    }
}
