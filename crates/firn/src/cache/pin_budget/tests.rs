use super::*;
use crate::cache::Eviction;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// An open file as the budget sees it.
#[derive(Default)]
struct Owner {
    pin: Mutex<Option<Pin>>,
    used: AtomicBool,
    in_use: AtomicBool,
}

impl Owner {
    fn open(self: &Arc<Self>, budget: &Arc<PinBudget>, bytes: u64) {
        let mut pin = self.pin.lock();
        if pin.is_none() {
            *pin = Some(budget.charge(bytes));
            drop(pin);
            let owner: Weak<dyn Evictable> = Arc::<Self>::downgrade(self);
            budget.add_evictable(owner);
        }
        self.used.store(true, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.pin.lock().as_ref().map_or(0, Pin::bytes)
    }
}

impl Evictable for Owner {
    fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn evict(&self) -> Eviction {
        if self.in_use.load(Ordering::Relaxed) {
            return Eviction::InUse;
        }
        match self.pin.try_lock() {
            None => Eviction::InUse,
            Some(mut pin) => pin.take().map_or(Eviction::Nothing, |_| Eviction::Evicted),
        }
    }
}

/// A budget with this limit, and the number of times that the block cache was resized.
fn budget(limit: u64) -> (Arc<PinBudget>, Arc<AtomicUsize>) {
    let resizes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&resizes);
    let budget = PinBudget::unlimited(Box::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    budget.set_limit(limit);
    (budget, resizes)
}

fn owners(count: usize) -> Vec<Arc<Owner>> {
    (0..count).map(|_| Arc::default()).collect()
}

/// Files of random sizes are opened, used and held at random. As long as some file that nobody
/// holds has its turn, the limit holds; and the used bytes are always those of the open files.
#[test]
fn charges_stay_within_the_limit() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (budget, _) = budget(1000);
        let owners = owners(100);
        for step in 0..3000 {
            let owner = &owners[rng.random_range(0..owners.len())];
            match rng.random_range(0..10) {
                0 => owner.in_use.store(owner.bytes() > 0, Ordering::Relaxed),
                1..4 => owners
                    .iter()
                    .for_each(|o| o.in_use.store(false, Ordering::Relaxed)),
                _ => owner.open(&budget, rng.random_range(1..60)),
            }
            let open: u64 = owners.iter().map(|owner| owner.bytes()).sum();
            assert_eq!(budget.used(), open, "seed {seed}, step {step}");
            assert!(open <= 1000, "seed {seed}, step {step}: {open}");
        }
        let stats = budget.stats();
        assert!(stats.evictions > 500, "{stats:?}");
        assert_eq!(stats.over_limit, 0);
    }
}

#[test]
fn threads_do_not_exceed_the_limit_together() {
    let (budget, _) = budget(1000);
    let owners = owners(64);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (budget, owners) = (&budget, &owners);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..5000 {
                    owners[rng.random_range(0..64)].open(budget, 50);
                    // A charge may find that the others are just being opened; there are at most
                    // four of these.
                    assert!(budget.used() <= 1200, "{}", budget.used());
                }
            });
        }
    });
    assert_eq!(
        budget.used(),
        owners.iter().map(|owner| owner.bytes()).sum()
    );
    assert!(budget.stats().evictions > 5000);
}

#[test]
fn a_used_owner_is_spared_once() {
    let (budget, _) = budget(100);
    let owners = owners(11);
    owners[..10]
        .iter()
        .for_each(|owner| owner.open(&budget, 10));
    for (i, owner) in owners.iter().enumerate() {
        owner.used.store(i == 0, Ordering::Relaxed);
    }
    owners[10].open(&budget, 10);
    assert_eq!((owners[0].bytes(), owners[1].bytes()), (10, 0));
    // If all were used, one of them goes even so.
    owners
        .iter()
        .for_each(|owner| owner.used.store(true, Ordering::Relaxed));
    owners[1].open(&budget, 10);
    assert_eq!(budget.used(), 100);
}

/// A charge that finds all others in use exceeds the limit. Once they exceed it by an eighth, it
/// asks for a sweep; a trifle does not.
#[test]
fn an_excess_asks_for_a_sweep_if_it_is_large() {
    let (budget, _) = budget(100);
    let owners = owners(13);
    for owner in &owners[..11] {
        owner.open(&budget, 10);
        owner.in_use.store(true, Ordering::Relaxed);
    }
    assert_eq!((budget.used(), budget.stats().over_limit), (110, 1));
    assert!(!budget.is_over() && !*budget.asked.lock());
    owners[11].open(&budget, 10);
    assert!(budget.is_over());
    // The wait ends although its time is not over: a timeout would fail the test by its length.
    budget.wait_for_excess(Duration::from_secs(3600));
    owners
        .iter()
        .for_each(|o| o.in_use.store(false, Ordering::Relaxed));
    budget.evict_excess();
    assert_eq!(budget.used(), 100);
}

#[test]
fn a_waiting_thread_is_woken_by_a_lower_limit() {
    let (budget, _) = budget(100);
    let pin = budget.charge(100);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            budget.wait_for_excess(Duration::from_secs(3600));
            assert!(budget.is_over());
        });
        budget.set_limit(95);
        assert!(!*budget.asked.lock(), "5 bytes are no reason");
        budget.set_limit(50);
    });
    drop(pin);
    assert_eq!(budget.excess(), 0);
}

/// Files that come and go within the limit do not resize the block cache each time.
#[test]
fn evictions_do_not_resize_the_cache() {
    let (budget, resizes) = budget(1 << 19);
    budget.set_room(Some(1 << 20));
    let owners = owners(200);
    for _ in 0..20 {
        owners.iter().for_each(|owner| owner.open(&budget, 5000));
    }
    assert!(budget.stats().evictions > 3000);
    let resizes = resizes.load(Ordering::Relaxed);
    assert!(resizes <= STEPS as usize, "{resizes} resizes");
}

/// A room that goes up and down by little reduces the block cache once. One that grows by much
/// gives it more.
#[test]
fn a_room_that_changes_a_little_does_not_resize_the_cache_each_time() {
    let (budget, resizes) = budget(1 << 19);
    let resized = || resizes.load(Ordering::Relaxed);
    budget.set_room(Some(1 << 20));
    let first = resized();
    for _ in 0..100 {
        budget.set_room(Some((1 << 20) - (1 << 15)));
        budget.set_room(Some(1 << 20));
    }
    assert_eq!(resized(), first + 1);
    budget.set_room(Some(5 << 18));
    assert_eq!(resized(), first + 2);
    budget.set_room(None);
    assert_eq!(resized(), first + 2);
    budget.set_room(Some(5 << 18));
    assert_eq!(resized(), first + 3, "the capacity is not known");
}

#[test]
fn grants_leave_room_for_charges() {
    let (budget, _) = budget(800);
    let granted: Vec<_> = std::iter::from_fn(|| budget.grant(10, true)).collect();
    assert_eq!(granted.len(), 70);
    let owners = owners(20);
    for _ in 0..3 {
        for owner in &owners {
            owner.open(&budget, 20);
            assert!(budget.used() <= 800);
        }
    }
    assert_eq!(owners.iter().filter(|owner| owner.bytes() > 0).count(), 5);
}

#[test]
fn owners_that_are_gone_leave_no_turns_behind() {
    let (budget, _) = budget(1 << 30);
    for _ in 0..1000 {
        owners(1)[0].open(&budget, 10);
    }
    assert!(budget.clock.len() <= 2 * 64, "{}", budget.clock.len());
    assert_eq!(budget.used(), 0);
}
