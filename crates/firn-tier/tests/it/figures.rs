//! The figures that users see.

use crate::world::{MINUTE_US, World};
use firn::base::options::Tier;
use firn::env::{ClassReads, ReadClass};
use firn_objects::HealthState;
use firn_tier::Ownership;

/// Reads and bytes of a class.
fn of(all: impl Iterator<Item = ClassReads>, class: ReadClass) -> (u64, u64) {
    let mut all = all.filter(|reads| reads.class == class);
    all.next()
        .map_or((0, 0), |reads| (reads.reads, reads.bytes))
}

/// The reads and bytes that the cache and the store have served.
fn served(world: &World, class: ReadClass) -> ((u64, u64), (u64, u64)) {
    let cold = world.cold();
    (
        of(cold.cached_reads(), class),
        of(cold.fetched_reads(), class),
    )
}

#[test]
fn reads_are_counted_where_they_are_served() {
    let mut world = World::new(101);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    let reads = |world: &World| served(world, ReadClass::Point);
    assert_eq!(reads(&world), ((0, 0), (0, 0)));
    world.check_rows(1000);
    let (cached, fetched) = reads(&world);
    // A file has one chunk, which an open reads: its blocks come from the cache then.
    assert!(cached.0 >= 50 && cached.1 >= cached.0 * 100, "{cached:?}");
    let opened = served(&world, ReadClass::Index).1;
    let files = world.places().1 as u64;
    assert!(opened.0 + fetched.0 >= files, "{opened:?} {fetched:?}");
    world.check_rows(1000);
    let (again, the_same) = reads(&world);
    assert!(again.0 >= 2 * cached.0 - cached.0 / 2, "{again:?}");
    assert_eq!(the_same, fetched);
    let stats = world.cold().stats();
    assert!(stats.cache.hits >= again.0 && stats.cache.misses >= files);
    assert!(stats.cache.bytes > 0 && stats.cache.bytes_max == 4 << 20);

    // A compaction asks for whole files, and memory answers most of its reads.
    let before = world.cold().stats().gets;
    let bytes = world.db().places().remote.bytes;
    world.try_write(&[(1, Some(5)), (999, Some(5))]).unwrap();
    world.db().compact_all().unwrap();
    let (none, compacted) = served(&world, ReadClass::Compaction);
    assert_eq!(none, (0, 0));
    assert!((1..=2 * files).contains(&compacted.0), "{compacted:?}");
    assert!(
        compacted.1 > 1000 && compacted.1 <= 2 * bytes,
        "{compacted:?}"
    );
    let gets = world.cold().stats().gets;
    assert!(gets.bytes >= before.bytes + compacted.1);
    let read = { world.cold().fetched_reads() }.find(|reads| reads.class == ReadClass::Compaction);
    assert!(read.unwrap().latency_us(99).is_some());
}

#[test]
fn requests_places_and_outages_are_reported() {
    let mut world = World::new(102);
    world.cache_bytes = 0;
    world.open();
    let stats = world.cold().stats();
    assert_eq!((stats.gets.requests, stats.puts.requests), (0, 0));
    assert_eq!(stats.ownership, Ownership::Unknown);
    world.load(0..1000, 1);
    let all = world.db().places();
    let files = world.places().0 as u64;
    assert_eq!((all.local.files, all.remote.files), (files, 0));
    assert_eq!(all.remote.bytes, 0);

    world.set_tier(Tier::Cold);
    assert!(world.db().tier_step().unwrap());
    let places = world.db().places();
    assert_eq!((places.local.files, places.remote.files), (files - 1, 1));
    assert_eq!(
        places.local.bytes + places.remote.bytes,
        all.local.bytes + all.remote.bytes
    );
    world.move_all();
    let places = world.db().places();
    assert_eq!((places.local.files, places.remote.files), (0, files));
    assert_eq!(
        (places.local.bytes, places.remote.bytes),
        (0, all.local.bytes)
    );
    assert_eq!(places.objects_to_delete, 0);
    let stats = world.cold().stats();
    assert_eq!(stats.ownership, Ownership::Ours);
    // The objects, the identity, the owner.
    assert_eq!(stats.puts.requests, files + 2);
    assert!(stats.puts.bytes > all.local.bytes);
    assert_eq!(stats.uploads.stored_bytes, all.local.bytes);
    // The store counts as much.
    let sum = [&stats.gets, &stats.puts, &stats.lists, &stats.deletes];
    let requests: u64 = sum.iter().map(|stats| stats.requests).sum();
    assert_eq!(requests, world.objects.traffic().0);

    world.set_tier(Tier::Local);
    world.move_all();
    let places = world.db().places();
    assert_eq!(
        (places.local.files, places.objects_to_delete),
        (files, files)
    );
    world.pass(11 * MINUTE_US);
    world.db().tier_step().unwrap();
    assert_eq!(world.cold().stats().deletes.requests, files);

    world.set_tier(Tier::Cold);
    world.pass(80 * MINUTE_US);
    // The first step notes that the objects are gone; then files may move again.
    assert_eq!(world.move_all(), 0);
    assert_eq!(world.db().places().objects_to_delete, 0);
    assert_eq!(world.move_all() as u64, files);
    assert_eq!(world.cold().stats().health.state, HealthState::Up);
    world.objects.go_out(1000 * MINUTE_US);
    assert!((0..1000).any(|n| world.read(n).is_err()));
    world.pass(5 * MINUTE_US);
    let stats = world.cold().stats();
    assert_eq!(
        (stats.health.state, stats.health.opened),
        (HealthState::Down, 1)
    );
    assert!(stats.health.out_us >= 5 * MINUTE_US);
    assert!(stats.gets.failed >= 3, "{}", stats.gets.failed);
    assert!(stats.health.last_error.is_some());
    world.pass(1000 * MINUTE_US);
    world.check_rows(1000);
    let health = world.cold().stats().health;
    assert_eq!((health.state, health.out_us), (HealthState::Up, 0));
}
