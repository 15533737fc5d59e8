//! Files move to the store and back, and what is left over goes.

use crate::world::{CACHE, MINUTE_US, World};
use firn::base::ErrorKind;
use firn::base::options::Tier;
use firn_objects::mem::Faults;
use firn_tier::{IDENTITY, OWNER, object_name};
use std::path::Path;

#[test]
fn a_database_moves_to_the_store_and_back() {
    let mut world = World::new(1);
    world.open();
    world.load(0..2000, 1);
    let (files, none) = world.places();
    assert!(files > 5 && none == 0);
    assert_eq!(world.move_all(), 0, "the tier is local");
    assert!(world.objects.contents().is_empty());

    world.set_tier(Tier::Cold);
    assert_eq!(world.move_all(), files);
    assert_eq!(world.places(), (0, files));
    world.check_places();
    world.check_rows(2000);
    world.check_nothing_left();
    world.close();

    world.open();
    assert_eq!(world.move_all(), 0);
    world.check_rows(2000);

    world.set_tier(Tier::Local);
    assert_eq!(world.move_all(), files);
    assert_eq!(world.places(), (files, 0));
    world.check_places();
    world.check_rows(2000);
    assert_eq!(
        world.objects.contents().len(),
        files + 2,
        "nothing is deleted yet"
    );
    world.check_nothing_left();
    let left: Vec<String> = world.objects.contents().into_keys().collect();
    assert_eq!(left, [IDENTITY, OWNER]);
    world.check_rows(2000);
}

/// The ten minutes, and the hour in which a file that came back stays.
#[test]
fn objects_are_deleted_when_their_time_has_come() {
    let mut world = World::new(2);
    world.open();
    world.load(0..500, 1);
    world.set_tier(Tier::Cold);
    let files = world.move_all();
    let remote: Vec<u64> = world.manifest().files.into_keys().collect();
    world.set_tier(Tier::Local);
    world.move_all();
    assert_eq!(world.manifest().deferred.len(), files);
    world.pass(9 * MINUTE_US);
    world.db().tier_step().unwrap();
    assert_eq!(world.objects.contents().len(), files + 2);
    // A restart lets the time begin again.
    world.close();
    world.open();
    world.db().tier_step().unwrap();
    world.pass(9 * MINUTE_US);
    world.db().tier_step().unwrap();
    assert_eq!(world.objects.contents().len(), files + 2);
    world.pass(2 * MINUTE_US);
    world.db().tier_step().unwrap();
    assert_eq!(world.objects.contents().len(), 2);
    // A late execution of these deletions must not hit a new upload.
    world.set_tier(Tier::Cold);
    assert_eq!(world.move_all(), 0);
    world.pass(50 * MINUTE_US);
    assert_eq!(world.move_all(), 0);
    assert_eq!(world.manifest().deferred.len(), files);
    world.pass(11 * MINUTE_US);
    assert_eq!(world.move_all(), files);
    assert!(world.manifest().deferred.is_empty());
    let again: Vec<u64> = world.manifest().files.into_keys().collect();
    assert_eq!(again, remote);
    world.check_places();
    world.check_rows(500);
}

#[test]
fn compactions_replace_remote_files() {
    let mut world = World::new(3);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    let files = world.move_all();
    let old: Vec<u64> = world.manifest().files.into_keys().collect();
    world.load(0..1000, 2);
    assert!(
        old.iter()
            .all(|id| !world.manifest().files.contains_key(id))
    );
    assert_eq!(world.manifest().deferred.len(), files);
    world.check_rows(1000);
    assert!(world.move_all() > 0);
    world.check_places();
    world.check_nothing_left();
    let objects = world.objects.contents();
    assert!(
        old.iter()
            .all(|id| !objects.contains_key(&object_name(*id)))
    );
    world.check_rows(1000);
}

/// A reader that began before a file was deleted reads on.
#[test]
fn no_object_goes_that_a_reader_needs() {
    let mut world = World::new(4);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    let files = world.move_all();
    let version = firn::db::current_version(world.db());
    let file = version.files().next().unwrap().1;
    let reader = file.open().unwrap();
    drop(version);
    world.load(0..1000, 2);
    let delete = || {
        world.pass(61 * MINUTE_US);
        world.db().tier_step().unwrap();
        world.pass(61 * MINUTE_US);
        world.db().tier_step().unwrap();
    };
    delete();
    assert_eq!(world.manifest().deferred.len(), 1);
    reader.verify().unwrap();
    drop(reader);
    delete();
    assert!(world.manifest().deferred.is_empty());
    assert!(files > 1);
}

#[test]
fn damaged_local_copies_are_read_again_and_damaged_objects_are_damage() {
    let mut world = World::new(5);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    world.check_rows(1000);
    let ids: Vec<u64> = world.manifest().files.into_keys().collect();
    let cached = |id: u64| format!("{CACHE}/{}.chunks", object_name(id).replace('/', ","));
    for reopen in [false, true] {
        if reopen {
            world.close();
            world.open();
        }
        for &id in &ids {
            for at in (0..4096).step_by(61) {
                world.cache_files.damage(Path::new(&cached(id)), at);
            }
        }
        world.check_rows(1000);
    }
    assert!(world.cold().stats().cache.damaged > 0);

    let (first, damaged) = (ids[0], object_name(ids[0]));
    assert!(world.objects.damage(&damaged, 100));
    world.cold().set_cache_bytes(0);
    let errors = (0..1000).filter_map(|n| world.read(n).err());
    let errors: Vec<_> = errors.collect();
    assert!(!errors.is_empty() && errors.len() < 500, "{}", errors.len());
    for error in errors {
        let ErrorKind::Corruption { file, .. } = error.kind() else {
            panic!("{error}");
        };
        assert_eq!(*file, format!("{first:010}.sst"));
    }
}

#[test]
fn checkpoints_refuse_remote_files() {
    let mut world = World::new(6);
    world.open();
    world.load(0..100, 1);
    world.db().checkpoint(Path::new("/one"), true).unwrap();
    world.set_tier(Tier::Cold);
    world.move_all();
    let error = world.db().checkpoint(Path::new("/two"), true).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("object store"), "{error}");
}

/// A read asks again for bytes that were damaged on their way.
#[test]
fn damaged_answers_are_asked_for_again() {
    let mut world = World::new(7);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    let files = world.move_all();
    world.cold().set_cache_bytes(0);
    world.objects.set_faults(Faults {
        flip_read: 20,
        ..Faults::default()
    });
    world.check_rows(1000);
    world.set_tier(Tier::Local);
    assert_eq!(world.move_all(), files);
    world.check_places();
}
