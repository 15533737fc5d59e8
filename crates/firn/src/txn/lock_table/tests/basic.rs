use super::*;
use crate::base::pause_points::{self, PausePoint};
use crate::txn::lock_table::lock_request::LockRequest;
use LockMode::{Exclusive, Shared};

const BRIEF: WaitPolicy = WaitPolicy::Wait { timeout_micros: 1 };
const NEWLY: Granted = Granted {
    newly: true,
    upgraded: false,
    waited: false,
};

#[test]
fn a_lock_is_newly_granted_once() {
    for table in tables() {
        let owner = LockOwner::new(1, 0);
        assert_eq!(table.acquire(&owner, b"a", Shared, LONG).unwrap(), NEWLY);
        for (mode, upgraded) in [(Shared, false), (Exclusive, true), (Shared, false)] {
            let expected = Granted {
                newly: false,
                upgraded,
                waited: false,
            };
            assert_eq!(table.acquire(&owner, b"a", mode, LONG).unwrap(), expected);
        }
        assert_eq!(table.holds(&owner, b"a"), Some(Exclusive));
        assert_eq!(owner.locks_held(), 1);
        assert!(table.release(&owner, b"a"));
        assert!(!table.release(&owner, b"a"));
        assert_eq!(table.holds(&owner, b"a"), None);
        assert_eq!(owner.locks_held(), 0);
        assert!(table.locks(10).is_empty());
    }
}

#[test]
fn policies_that_do_not_wait() {
    for table in tables() {
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        table.acquire(&one, b"a", Exclusive, LONG).unwrap();
        let kind = |policy| {
            let error = table.acquire(&two, b"a", Shared, policy).unwrap_err();
            error.kind().clone()
        };
        assert_eq!(kind(WaitPolicy::NoWait), ErrorKind::LockNotAvailable);
        assert_eq!(kind(WaitPolicy::SkipLocked), ErrorKind::LockNotAvailable);
        assert_eq!(
            kind(WaitPolicy::Wait { timeout_micros: 0 }),
            ErrorKind::LockTimeout
        );
        assert_eq!(table.stats().waits, 0);
        assert_eq!(kind(BRIEF), ErrorKind::LockTimeout);
        let stats = table.stats();
        assert_eq!((stats.waits, stats.timeouts), (1, 2));
        assert!(table.waits().is_empty());
        table.release_all(&one);
        assert_eq!(table.acquire(&two, b"a", Shared, BRIEF).unwrap(), NEWLY);
    }
}

/// The lock of a duplicate becomes shared: requests for an exclusive lock go on waiting, shared
/// ones that are first do not.
#[test]
fn an_exclusive_lock_becomes_shared() {
    for table in tables() {
        let [one, two, three] = [1, 2, 3].map(|id| LockOwner::new(id, 0));
        table.acquire(&one, b"a", Exclusive, LONG).unwrap();
        // Locks of other keys, after which a table that merges has merged the first one.
        for n in 0..100u32 {
            table
                .acquire(&one, &n.to_be_bytes(), Exclusive, LONG)
                .unwrap();
        }
        table.share(&one, b"a");
        assert_eq!(table.holds(&one, b"a"), Some(Shared));
        assert_eq!(one.locks_held(), 101);
        assert!(table.only_shares(&one, b"a"));
        assert!(table.acquire(&two, b"a", Exclusive, BRIEF).is_err());
        assert_eq!(table.acquire(&two, b"a", Shared, BRIEF).unwrap(), NEWLY);
        table.release_all(&two);
        // With requests in the queue.
        table.acquire(&one, b"a", Exclusive, LONG).unwrap();
        std::thread::scope(|scope| {
            let shared = scope.spawn(|| table.acquire(&two, b"a", Shared, LONG));
            while table.waits().is_empty() {
                std::thread::yield_now();
            }
            let exclusive = scope.spawn(|| table.acquire(&three, b"a", Exclusive, LONG));
            while table.waits().len() < 2 {
                std::thread::yield_now();
            }
            table.share(&one, b"a");
            shared.join().unwrap().unwrap();
            assert_eq!(table.holds(&one, b"a"), Some(Shared));
            assert_eq!(table.holds(&three, b"a"), None);
            table.release_all(&two);
            assert_eq!(table.waits().len(), 1);
            table.release_all(&one);
            exclusive.join().unwrap().unwrap();
        });
        table.release_all(&three);
        assert!(table.locks(10).is_empty());
    }
}

#[test]
fn release_all_frees_everything() {
    for table in tables() {
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        for i in 0..5000u32 {
            table
                .acquire(&one, &i.to_be_bytes(), Exclusive, LONG)
                .unwrap();
        }
        table.acquire(&two, b"other", Shared, LONG).unwrap();
        assert_eq!(one.locks_held(), 5000);
        let locked = table.locks(10_000);
        assert_eq!(locked.iter().map(|lock| lock.rows).sum::<u64>(), 5001);
        assert_eq!(table.locks(1).len(), 1);
        table.release_all(&one);
        assert_eq!(one.locks_held(), 0);
        assert_eq!(
            table.locks(100),
            [LockInfo {
                is_gap: false,
                owner: 2,
                key: b"other".to_vec(),
                last: None,
                rows: 1,
                mode: Shared
            }]
        );
    }
}

#[test]
fn an_interrupt_before_the_wait_and_during_it() {
    for table in tables() {
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        table.acquire(&one, b"a", Exclusive, LONG).unwrap();
        two.interrupt();
        let free = table.acquire(&two, b"free", Exclusive, LONG);
        assert!(free.is_ok(), "what does not wait is not interrupted");
        let error = table.acquire(&two, b"a", Exclusive, LONG).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Interrupted);
        two.clear_interrupt();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| table.acquire(&two, b"a", Exclusive, LONG));
            until_waiting(&table, 1);
            two.interrupt();
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Interrupted);
        });
        assert!(table.waits().is_empty());
        two.clear_interrupt();
        table.release_all(&one);
        table.acquire(&two, b"a", Exclusive, LONG).unwrap();
    }
}

/// An interrupt may come before the wait, at its start or during it; the wait always ends.
#[test]
fn an_interrupt_races_with_the_wait() {
    for table in tables() {
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        for _ in 0..500 {
            table.acquire(&one, b"a", Exclusive, LONG).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| table.acquire(&two, b"a", Exclusive, LONG));
                two.interrupt();
                let error = waiting.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), &ErrorKind::Interrupted);
            });
            two.clear_interrupt();
            table.release_all(&one);
            assert!(table.locks(1).is_empty());
        }
    }
}

/// An interrupt that has ended an earlier request may kick the next one late. That is no timeout.
#[test]
fn a_late_kick_does_not_end_the_next_wait() {
    for table in tables() {
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        table.acquire(&one, b"a", Exclusive, LONG).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| table.acquire(&two, b"a", Exclusive, LONG));
            until_waiting(&table, 1);
            while two.waiting().is_none() {
                std::thread::yield_now();
            }
            for _ in 0..100 {
                if let Some(waiter) = two.waiting() {
                    waiter.kick();
                }
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(table.waits().len(), 1, "the kick ended the wait");
            table.release_all(&one);
            assert!(waiting.join().unwrap().unwrap().waited);
        });
        assert_eq!(table.stats().timeouts, 0);
        table.release_all(&two);
    }
}

struct Reports(Mutex<Vec<(u64, u64)>>);

impl WaitObserver for Reports {
    fn waits_for(&self, waiter: u64, blocker: u64) {
        self.0.lock().push((waiter, blocker));
    }
}

#[test]
fn the_observer_is_told_of_every_blocker_before_the_sleep() {
    for table in tables() {
        let reports = Arc::new(Reports(Mutex::new(Vec::new())));
        table.set_observer(Some(Arc::clone(&reports) as Arc<dyn WaitObserver>));
        let owners: Vec<_> = (1..=4).map(|i| LockOwner::new(i, 100 + i)).collect();
        for owner in &owners[..3] {
            table.acquire(owner, b"a", Shared, LONG).unwrap();
        }
        owners[2].detach_host();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| table.acquire(&owners[3], b"a", Exclusive, LONG));
            while reports.0.lock().len() < 2 {
                std::thread::yield_now();
            }
            assert_eq!(table.waits()[0].blockers, [1, 2, 3]);
            owners[..3]
                .iter()
                .for_each(|owner| table.release_all(owner));
            assert!(waiting.join().unwrap().unwrap().waited);
        });
        let mut reports = reports.0.lock().clone();
        reports.sort_unstable();
        assert_eq!(reports, [(104, 101), (104, 102)]);
    }
}

#[test]
fn a_lock_that_is_free_at_the_second_attempt_was_waited_for() {
    for table in tables() {
        let (one, two) = (LockOwner::new(1, 0), LockOwner::new(2, 0));
        table.acquire(&one, b"a", Exclusive, LONG).unwrap();
        let table = Arc::new(table);
        let holds = Arc::clone(&table);
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::LockRefused {
                holds.release_all(&one);
            }
        });
        let granted = table.acquire(&two, b"a", Exclusive, LONG).unwrap();
        pause_points::clear();
        assert!(granted.newly && granted.waited);
        assert_eq!(table.stats().waits, 0);
    }
}

fn request(owner: &Arc<LockOwner>, mode: LockMode) -> Arc<LockRequest> {
    LockRequest::for_row(owner, &Arc::from(&b"a"[..]), mode, false, WaitReports::All)
}

/// A report lists about as many blockers as a long queue has requests, not the square of that, and
/// each request still leads to the holder.
#[test]
fn a_report_on_a_long_queue_is_short() {
    use crate::txn::lock_table::lock_queue::LockQueue;
    const REQUESTS: u64 = 1000;
    let holder = LockOwner::new(1, 0);
    let mut queue = LockQueue::new(&holder, Exclusive);
    for id in 2..REQUESTS + 2 {
        let mode = if id % 3 == 0 { Shared } else { Exclusive };
        let waiter = request(&LockOwner::new(id, 0), mode);
        queue.enqueue(&waiter);
    }
    let mut listed = 0;
    let mut leads_to_holder = std::collections::HashSet::from([1]);
    let mut reported = 0;
    queue.for_each_wait(|waiter, blockers| {
        reported += 1;
        listed += blockers.len();
        let id = waiter.owner.id();
        assert!(
            blockers
                .iter()
                .any(|blocker| leads_to_holder.contains(blocker)),
            "{id}"
        );
        leads_to_holder.insert(id);
        if id < 60 {
            let all = queue.blockers(waiter);
            assert!(all.iter().map(|owner| owner.id()).eq(blockers));
        }
    });
    assert_eq!(reported, REQUESTS);
    assert!(listed < 64 * 64 + 2 * REQUESTS as usize, "{listed}");
}

/// A search goes from a request to holders, however many requests stand in between.
#[test]
fn a_deadlock_search_does_not_walk_through_queues() {
    use crate::base::work_count::counted;
    use crate::txn::lock_table::lock_queue::LockQueue;
    let request = |id, mode| {
        let owner = LockOwner::new(id, 0);
        request(&owner, mode)
    };
    for held in [Shared, Exclusive] {
        for asked in [Shared, Exclusive] {
            let holder = LockOwner::new(1, 0);
            let mut queue = LockQueue::new(&holder, held);
            // The first request is one that the holder blocks.
            let front = request(2, Exclusive);
            queue.enqueue(&front);
            (3..10_000).for_each(|id| queue.enqueue(&request(id, asked)));
            let last = request(10_000, asked);
            queue.enqueue(&last);
            let (found, work) = counted(|| queue.nearest_blockers(&last));
            assert!(work.waiters <= 1, "{held:?} {asked:?}: {work:?}");
            let found: Vec<u64> = found.iter().map(|owner| owner.id()).collect();
            match (held, asked) {
                (Shared, Shared) => assert_eq!(found, [2]),
                _ => assert_eq!(found, [1]),
            }
            let of_front = queue.nearest_blockers(&front);
            assert!(of_front.iter().all(|owner| owner.id() == 1));
        }
    }
}

/// Thousands of sessions that insert children of one parent row share its lock.
#[test]
fn an_attempt_and_a_release_do_not_look_at_all_sharers() {
    use crate::base::work_count::counted;
    use crate::txn::lock_table::lock_queue::{LockAttempt, LockQueue};
    const MANY: u64 = 10_000;
    let owners: Vec<_> = (0..MANY).map(|id| LockOwner::new(id + 1, 0)).collect();
    let ((), work) = counted(|| {
        let mut queue = LockQueue::new(&owners[0], Shared);
        for owner in &owners[1..] {
            assert_eq!(queue.attempt(owner, Shared), LockAttempt::Granted);
            assert_eq!(queue.attempt(owner, Shared), LockAttempt::Held);
            let blocked = LockAttempt::Blocked { upgrade: true };
            assert_eq!(queue.attempt(owner, Exclusive), blocked);
        }
        let stranger = LockOwner::new(MANY + 1, 0);
        assert_eq!(queue.mode_of(&stranger), None);
        assert!(!queue.remove_holder(&stranger));
        let (last, others) = owners.split_last().unwrap();
        // From both ends and from the middle.
        for at in 0..others.len() {
            let at = at * 7919 % others.len();
            assert!(queue.remove_holder(&others[at]));
            assert!(!queue.remove_holder(&others[at]));
        }
        assert_eq!(queue.attempt(last, Exclusive), LockAttempt::Upgraded);
        assert_eq!(queue.mode_of(last), Some(Exclusive));
        let blocked = LockAttempt::Blocked { upgrade: false };
        assert_eq!(queue.attempt(&stranger, Shared), blocked);
        assert!(queue.remove_holder(last) && queue.is_free());
    });
    assert_eq!(work.holders, 0, "{work:?}");
}

/// A host that orders no commits hears of no more waits than it needs, and a wait that begins does
/// not visit the requests ahead of it.
#[test]
fn a_wait_reports_no_more_than_the_host_wants() {
    use crate::base::work_count::counted;
    use crate::txn::lock_table::merged_locks::MergedLockRegistry;
    use crate::txn::lock_table::shard::Shard;
    let registry = MergedLockRegistry::new();
    for (reports, visited_max) in [(WaitReports::None, 0), (WaitReports::Nearest, 3)] {
        let shard = Shard::default();
        let holder = LockOwner::new(1, 0);
        shard
            .attempt(&registry, &holder, b"a", Exclusive)
            .expect("it is free");
        for id in 2..10_000 {
            let owner = LockOwner::new(id, 0);
            let waiter = shard
                .attempt_or_enqueue(&registry, &owner, b"a", Exclusive, reports)
                .expect_err("it waits");
            let mut reported = Vec::new();
            let ((), work) =
                counted(|| shard.for_each_reported(&waiter, |owner| reported.push(owner.id())));
            assert!(work.waiters <= visited_max, "{reports:?} {id}: {work:?}");
            match reports {
                WaitReports::None => assert!(reported.is_empty()),
                _ if id == 2 => assert_eq!(reported, [1]),
                _ => assert_eq!(reported, [id - 1, 1]),
            }
        }
    }
}

/// The nearest conflicting requests are reported, not compatible ones.
#[test]
fn each_request_reports_the_nearest_ones_that_it_waits_for() {
    use crate::txn::lock_table::lock_queue::LockQueue;
    let mut queue = LockQueue::new(&LockOwner::new(1, 0), Shared);
    let modes = [(2, Exclusive), (3, Exclusive), (4, Shared), (5, Shared)];
    let waiters: Vec<_> = modes
        .into_iter()
        .chain([(6, Exclusive)])
        .chain((7..200).map(|id| (id, Shared)))
        .map(|(id, mode)| request(&LockOwner::new(id, 0), mode))
        .collect();
    let mut reported = Vec::new();
    for waiter in &waiters {
        queue.enqueue(waiter);
        let ids = queue.right_ahead(waiter);
        reported.push(ids.iter().map(|owner| owner.id()).collect::<Vec<_>>());
    }
    let first = [
        vec![1],
        vec![2, 1],
        vec![3],
        vec![3],
        vec![5, 4, 3, 1],
        vec![6],
    ];
    assert_eq!(reported[..6], first);
    // Each request that waits is reported with some blocker, however far the conflicting one is.
    assert!(reported.iter().all(|blockers| !blockers.is_empty()));
}
