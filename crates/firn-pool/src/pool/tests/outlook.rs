//! What a get would do, and networks that carry large batches slowly.

use super::*;
use crate::mem::Faults;

const LEN: usize = 48 << 10;

fn large(n: u64) -> Vec<u8> {
    mixed(n + 1).to_le_bytes().repeat(LEN / 8)
}

/// A pool with 40 large blocks on one node, whose network carries so many bytes in a microsecond.
fn slow_network(bytes_per_us: u64) -> World {
    let world = World::new(&[A]);
    for n in 0..40 {
        let class = Class::BatchedKeys;
        assert!(world.pool.put(&name(n), class, &large(n)));
        world.pool.tick();
    }
    let faults = Faults {
        bytes_per_us,
        ..Faults::default()
    };
    world.network.set_faults(A, faults);
    world
}

/// Gets five blocks together. Returns how many came.
fn get_five(world: &World, round: u64) -> usize {
    let first = round * 5 % 40;
    let blocks: Vec<_> = (first..first + 5)
        .map(|n| WantedBlock {
            name: name(n),
            len: LEN,
        })
        .collect();
    let is_right = |index: usize, bytes: &[u8]| bytes == large(first + index as u64);
    let class = Class::BatchedKeys;
    let found = world.pool.get_many(&blocks, class, &is_right);
    // What is late is drained.
    world.pass(20_000);
    found.iter().flatten().count()
}

fn outlook(world: &World, n: u64, class: Class) -> Outlook {
    world.pool.outlook(&name(n), class)
}

#[test]
fn the_outlook_is_what_a_get_does() {
    let world = World::new(&[A]);
    world.put(0..10);
    assert_eq!(outlook(&world, 0, Class::Point), Outlook::Asks);
    assert_eq!(outlook(&world, 99, Class::Point), Outlook::Passes);
    assert_eq!(outlook(&world, 0, Class::Maintenance), Outlook::Passes);
    // The file is faster for one class.
    for _ in 0..200 {
        world.pool.note_file_read(Class::Point, 1);
        world.pool.note_file_read(Class::Scan, 900);
    }
    assert_eq!(outlook(&world, 0, Class::Point), Outlook::Tries);
    assert_eq!(outlook(&world, 0, Class::Scan), Outlook::Asks);
    let asked = |world: &World| world.network.gets(A);
    let before = asked(&world);
    (0..64).for_each(|_| drop(world.get(0)));
    assert_eq!(asked(&world) - before, 2);
    // The node owes an answer; then it is down.
    world.network.stop(A);
    let late = WantedBlock {
        name: name(1),
        len: content(1).len(),
    };
    let found = world.pool.get(&late, Class::Scan, &|_| true);
    assert!(found.is_none());
    assert_eq!(outlook(&world, 0, Class::Scan), Outlook::Passes);
    world.pool.tick();
    assert!(world.pool.stats().nodes[0].breaker_open);
    assert_eq!(outlook(&world, 0, Class::Scan), Outlook::Passes);
    world.pool.set_enabled(false);
    assert_eq!(outlook(&world, 0, Class::Scan), Outlook::Passes);
}

#[test]
fn the_deadline_of_large_batches_follows_a_slower_network() {
    // Two gigabit a second: five blocks take 1 ms, more than is allowed at first.
    let world = slow_network(250);
    let came: Vec<usize> = (0..40).map(|round| get_five(&world, round)).collect();
    assert_eq!(came[0], 0, "{came:?}");
    assert!(came[10..].iter().all(|came| *came == 5), "{came:?}");
    let stats = world.pool.stats();
    assert_eq!(stats.nodes[0].breaker_opened, 0);
}

#[test]
fn batches_that_never_come_in_time_stop_paying_and_open_no_breaker() {
    let world = slow_network(20);
    world.put(100..110);
    world.pool.note_file_read(Class::BatchedKeys, 500);
    let mut late = 0;
    for round in 0..40 {
        late += usize::from(get_five(&world, round) < 5);
        assert!(world.get(100).is_some(), "single blocks come as before");
    }
    assert!(late > 30, "{late}");
    let class = Class::BatchedKeys;
    assert_eq!(outlook(&world, 0, class), Outlook::Tries);
    assert_eq!(outlook(&world, 100, Class::Point), Outlook::Asks);
    let stats = world.pool.stats();
    assert_eq!(stats.nodes[0].breaker_opened, 0);
    let asked = stats.nodes[0].classes[class.index()].gets;
    assert!(asked < 40 * 5, "{asked}");
}

/// Reads of a class that are slow as a whole are left out, but not for ever.
#[test]
fn reads_that_take_long_from_the_pool_are_made_of_the_file_until_tries_have_faded_that() {
    let world = World::new(&[A]);
    world.put(0..10);
    let class = Class::Scan;
    world.pool.note_file_read(class, 900);
    assert_eq!(outlook(&world, 0, class), Outlook::Asks);
    world.pool.note_pool_read(class, 1000);
    assert_eq!(outlook(&world, 0, class), Outlook::Tries);
    world.pool.note_file_read(Class::Point, 900);
    assert_eq!(outlook(&world, 0, Class::Point), Outlook::Asks);
    let one = || world.pool.get(&wanted(0), class, &|_| true).is_some();
    let refused = (0..1000).take_while(|_| {
        one();
        outlook(&world, 0, class) != Outlook::Asks
    });
    let refused = refused.count();
    assert!((100..200).contains(&refused), "{refused}");
    assert!(one(), "a get that pays forgets nothing");
    (0..20).for_each(|_| world.pool.note_pool_read(class, 1000));
    assert_eq!(outlook(&world, 0, class), Outlook::Tries);
}

#[test]
fn what_the_file_brings_sooner_in_any_case_is_not_put_twice() {
    let world = World::new(&[A]);
    world.put(0..10);
    let class = Class::Scan;
    let offers = || {
        let offers = (0..3).map(|_| world.pool.offer(&name(0), class, &content(0)));
        offers.filter(|taken| *taken).count()
    };
    world.pool.note_file_read(class, 900);
    let ring = world.pool.shared.ring.load();
    let shares = &ring.nodes()[0].hit_shares;
    (0..500).for_each(|_| shares.on_answer(class, false));
    assert_eq!(outlook(&world, 0, class), Outlook::Tries);
    assert!(offers() > 0, "the node may have lost it");
    world.pool.note_pool_read(class, 1000);
    assert_eq!(offers(), 0);
}

#[test]
fn blocks_of_compactions_leave_half_of_the_queue_to_queries() {
    let network = Arc::new(MemPool::new(1));
    network.start(A, 64 * MIB);
    let options = Options {
        server: 1,
        queue_bytes: 10_000,
        ..Options::new(1)
    };
    let world = World::over(&network, options);
    world.pool.set_nodes(A).unwrap();
    world.pool.set_enabled(true);
    world.pool.tick();
    let class = Class::Point;
    let puts = (0..100).filter(|n| world.pool.put(&name(*n), class, &content(*n)));
    let puts = puts.count();
    assert!((20..40).contains(&puts), "{puts}");
    let offered = (200..300).filter(|n| world.pool.offer(&name(*n), class, &content(*n)));
    let offered = offered.count();
    assert!((20..40).contains(&offered), "{offered}");
    world.pool.tick();
    assert!(world.pool.put(&name(100), class, &content(100)));
}

#[test]
fn a_block_that_the_pool_does_not_have_is_not_deleted_there() {
    let world = World::new(&[A]);
    world.put(0..10);
    world.pool.put(&name(10), Class::Point, &content(10));
    (0..1000).for_each(|n| world.pool.delete(&name(n), Class::Point));
    let (queued, _) = world.shared_queue();
    assert_eq!(queued, 11, "a put and ten deletions");
    world.pool.tick();
    assert_eq!(world.hits(0..10), 0);
}

/// A thread that has failed is followed by another one.
#[test]
fn a_pool_whose_thread_has_failed_can_be_switched_on_again() {
    let network = Arc::new(MemPool::new(1));
    let fails = Arc::new(AtomicBool::new(true));
    let (logs, logged) = (fails.clone(), Arc::new(AtomicUsize::new(0)));
    let count = logged.clone();
    let log: Log = Arc::new(move |_| {
        count.fetch_add(1, Relaxed);
        // The node that is down now is up when its probe is answered.
        assert!(!logs.load(Relaxed), "a log that fails");
    });
    let options = Options {
        server: 1,
        ..Options::new(1)
    };
    network.start(A, 64 * MIB);
    let pool = Pool::new(options, network.clone(), network.clone(), log).unwrap();
    pool.set_nodes(A).unwrap();
    pool.set_enabled(true);
    pool.start().unwrap();
    let wait = |until: &dyn Fn() -> bool| {
        for _ in 0..4000 {
            if until() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("it does not come");
    };
    wait(&|| !pool.is_enabled());
    fails.store(false, Relaxed);
    // The thread may still be on its way to its end.
    wait(&|| {
        pool.start().unwrap();
        pool.set_enabled(true);
        pool.put(&name(1), Class::Point, &content(1));
        network.items(A) > 0
    });
    assert!(logged.load(Relaxed) > 1);
    pool.stop();
}
