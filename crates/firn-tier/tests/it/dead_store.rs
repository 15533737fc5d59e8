//! A store that does not answer, and one that is another's.

use crate::world::{MINUTE_US, World};
use firn::base::ErrorKind;
use firn::base::options::{Options, Tier};
use firn::db::Db;
use firn::env::Env;
use firn_objects::ObjectStore;
use firn_objects::mem::MemObjects;
use std::path::Path;
use std::sync::Arc;

/// The open does not need the store, reads that do fail with an error that passes, and nothing is
/// poisoned or in quarantine.
#[test]
fn a_database_opens_and_writes_without_its_store() {
    let mut world = World::new(1);
    world.cache_bytes = 0;
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    world.close();
    world.objects.go_out(1000 * MINUTE_US);
    world.open();
    world.try_write(&[(5, Some(2)), (2000, Some(1))]).unwrap();
    world.db().flush().unwrap();
    assert_eq!(world.read(5).unwrap(), Some(2));
    assert_eq!(world.read(2000).unwrap(), Some(1));
    for _ in 0..3 {
        let error = world.read(6).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("mem://store"), "{error}");
    }
    let error = world.db().compact_all().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(
        firn::db::current_version(world.db())
            .quarantine()
            .is_empty()
    );
    world.try_write(&[(7, Some(3))]).unwrap();
    world.set_tier(Tier::Local);
    let error = world.db().tier_step().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");

    world.pass(1000 * MINUTE_US);
    world.check_rows(2001);
    world.db().compact_all().unwrap();
    world.move_all();
    world.check_rows(2001);
    world.check_places();
    world.check_nothing_left();
}

/// Reads of chunks that the file cache has need no store.
#[test]
fn the_cache_answers_while_the_store_is_out() {
    let mut world = World::new(2);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    world.check_rows(1000);
    for reopen in [false, true] {
        if reopen {
            world.close();
            world.open();
        }
        world.objects.go_out(1000 * MINUTE_US);
        world.check_rows(1000);
    }
}

#[test]
fn a_store_of_another_database_is_neither_read_nor_written() {
    let mut other = World::new(3);
    other.open();
    other.load(0..300, 7);
    other.set_tier(Tier::Cold);
    other.move_all();
    let before = other.objects.contents();

    let mut world = World::new(4);
    // The simulated environments would draw the same database id.
    let mut drawn = [0; 8];
    world.env.random(&mut drawn).unwrap();
    world.open();
    world.load(0..300, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    world.close();
    let ours = Arc::clone(&world.objects);
    world.objects = Arc::clone(&other.objects);
    world.cache_bytes = 0;
    world.open();
    let failed = |error: firn::base::Error| {
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("another database"), "{error}");
    };
    failed(world.read(3).unwrap_err());
    world.set_tier(Tier::Local);
    failed(world.db().tier_step().unwrap_err());
    assert_eq!(other.objects.contents(), before);
    world.close();

    // An empty store is not taken for ours when it is read.
    let clock = Arc::clone(&world.clock);
    world.objects = Arc::new(MemObjects::new(1, clock));
    world.open();
    let error = world.read(3).unwrap_err();
    assert!(
        error.to_string().contains("is it the right store"),
        "{error}"
    );
    assert!(world.objects.contents().is_empty());
    world.close();

    world.objects = ours;
    world.open();
    world.check_rows(300);
}

#[test]
fn remote_files_without_a_store_are_refused_at_the_open() {
    let mut world = World::new(5);
    world.open();
    world.load(0..100, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    world.close();
    let env: Arc<dyn Env> = Arc::new(world.env.clone());
    let opened = Db::open(env, Path::new("/db"), Options::default(), None);
    let error = opened.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("firn_storage_url"), "{error}");
    let store: Arc<dyn ObjectStore> = Arc::<MemObjects>::clone(&world.objects);
    world.try_open(store).unwrap();
    world.check_rows(100);
}
