//! Files move to the store and back, and what is left over goes.

use crate::world::{CACHE, MINUTE_US, MortalStore, World};
use firn::backup::RemoteInCheckpoint;
use firn::base::ErrorKind;
use firn::base::options::Tier;
use firn::env::Env;
use firn::version::{FileLocation, PlacedFile};
use firn_objects::ObjectStore;
use firn_objects::mem::Faults;
use firn_tier::{IDENTITY, OWNER};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    // This step says that the deletions are done.
    assert!(!world.db().tier_step().unwrap());
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
    let old = world.object_names();
    world.load(0..1000, 2);
    assert!(
        old.iter()
            .all(|(id, _)| !world.manifest().files.contains_key(id))
    );
    assert_eq!(world.manifest().deferred.len(), files);
    world.check_rows(1000);
    assert!(world.move_all() > 0);
    world.check_places();
    world.check_nothing_left();
    let objects = world.objects.contents();
    assert!(old.iter().all(|(_, name)| !objects.contains_key(name)));
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
        for _ in 0..2 {
            world.pass(61 * MINUTE_US);
            world.move_all();
        }
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
    let files = world.object_names();
    let cached = |name: &str| format!("{CACHE}/{}.chunks", name.replace('/', ","));
    for reopen in [false, true] {
        if reopen {
            world.close();
            world.open();
        }
        for (_, name) in &files {
            for at in (0..4096).step_by(61) {
                world.cache_files.damage(Path::new(&cached(name)), at);
            }
        }
        world.check_rows(1000);
    }
    assert!(world.cold().stats().cache.damaged > 0);

    let (first, damaged) = &files[0];
    assert!(world.objects.damage(damaged, 100));
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

/// A full disk stops all writes, so files that come back leave room.
#[test]
fn files_come_back_only_while_the_disk_has_room() {
    let mut world = World::new(8);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    let files = world.move_all();
    world.db().flush().unwrap();
    world.set_tier(Tier::Local);
    world.env.fill();
    let used = world.env.used();
    for _ in 0..3 {
        let error = world.db().tier_step().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(error.to_string().contains("stay free"), "{error}");
    }
    assert_eq!((world.env.used(), world.places()), (used, (0, files)));
    world.check_rows(1000);
    // Room for some of them: a quarter of the disk stays free.
    let state = world.manifest();
    let bytes: u64 = state.files.values().map(|placed| placed.meta.size).sum();
    world.env.make_room((used / 4 + bytes / 2) * 4 / 3);
    let mut moved = 0;
    let error = loop {
        match world.db().tier_step() {
            Ok(true) => moved += 1,
            Ok(false) => panic!("all are back"),
            Err(error) => break error,
        }
    };
    assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(moved > 0 && moved < files);
    world.check_places();
    world.env.unfill();
    assert_eq!(world.move_all(), files - moved);
    world.check_rows(1000);
}

/// Rows of which the files take most of the room.
const MANY: u64 = 40_000;

/// Makes the disk so full that a third of the local files must leave.
fn leave_a_third(world: &World) {
    let leaving = world.db().places().local.bytes / 3;
    let used = world.env.used();
    // A quarter of the disk is to be free when they have left: (room + leaving) * 4 = used + room.
    let room = (used - leaving * 4) / 3;
    assert!(
        room * 16 < (used + room) * 3,
        "less than three quarters of that: {room}, {used}, {leaving}"
    );
    world.env.fill();
    world.env.make_room(room);
}

fn check_some_rows(world: &World) {
    for n in (0..MANY).step_by(11) {
        assert_eq!(world.read(n).unwrap(), world.rows.get(&n).copied());
    }
}

/// Files that were read leave, too, while the disk runs full, the coldest ones first.
#[test]
fn files_leave_a_disk_that_runs_full() {
    let mut world = World::new(14);
    world.mutable.cold_after_s.store(1 << 40, Ordering::Relaxed);
    world.target_file_size = 1 << 20;
    world.open();
    world.load(0..MANY, 1);
    world.db().flush().unwrap();
    world.set_tier(Tier::Cold);
    let (files, _) = world.places();
    assert_eq!(world.move_all(), 0, "there is room");
    // The later half is read now, the earlier half a minute ago.
    world.pass(MINUTE_US);
    world.move_all();
    assert!((0..MANY / 2).step_by(7).all(|n| world.read(n).is_ok()));
    world.pass(MINUTE_US);
    world.move_all();
    assert!((MANY / 2..MANY).step_by(7).all(|n| world.read(n).is_ok()));

    // A quarter of the disk is to stay free: below three quarters of that, files leave.
    let used = world.env.used();
    world.env.fill();
    world.env.make_room(used / 4);
    let is_free = |world: &World| {
        let room = world.env.disk_room(Path::new("/db")).unwrap().unwrap();
        room.free * 4 >= room.total
    };
    assert!(!is_free(&world));
    assert_eq!(
        world.move_all(),
        0,
        "less than a quarter is free, and enough"
    );
    leave_a_third(&world);
    let moved = world.move_all();
    assert!(moved > files / 5 && moved < files / 2, "{moved} of {files}");
    assert!(is_free(&world));
    let state = world.manifest();
    let is_remote = |placed: &&PlacedFile| placed.meta.location == FileLocation::ObjectStore;
    let remote: Vec<_> = state.files.values().filter(is_remote).collect();
    let half = [&1_000_000u32.to_be_bytes()[..], &(MANY / 2).to_be_bytes()].concat();
    assert!(remote.iter().all(|placed| placed.meta.smallest < half));
    world.check_places();
    check_some_rows(&world);
    assert_eq!(world.move_all(), 0);

    // They do not come back into that room, but for what the last one has left more than needed.
    world.set_tier(Tier::Local);
    let mut back = 0;
    let error = loop {
        match world.db().tier_step() {
            Ok(_) => back += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(back <= 1, "{back}");
    world.set_tier(Tier::Cold);
    assert_eq!(world.move_all(), 0);
    world.env.unfill();
    world.set_tier(Tier::Local);
    assert_eq!(world.move_all(), moved - back);
    world.check_places();
    check_some_rows(&world);
}

/// Files that a reader keeps on the disk count as free: not all files leave meanwhile.
#[test]
fn no_more_files_leave_than_is_needed() {
    let mut world = World::new(15);
    world.mutable.cold_after_s.store(1 << 40, Ordering::Relaxed);
    world.target_file_size = 1 << 20;
    world.open();
    world.load(0..MANY, 1);
    world.db().flush().unwrap();
    world.set_tier(Tier::Cold);
    let (files, _) = world.places();
    let reader = firn::db::current_version(world.db());
    leave_a_third(&world);
    let moved = world.move_all();
    assert!(moved > files / 5 && moved < files / 2, "{moved} of {files}");
    world.pass(10 * MINUTE_US);
    assert_eq!(world.move_all(), 0);
    drop(reader);
    assert_eq!(world.move_all(), 0);
    world.check_places();
    // A write takes room, and the next ones leave.
    world.env.unfill();
    world.load(0..50, 2);
    let used = world.env.used();
    world.env.fill();
    world.env.make_room(used / 8);
    assert!(world.move_all() > 0);
    check_some_rows(&world);
    world.env.unfill();
    world.check_nothing_left();
}

/// The feature is for files that are read: those that are read while another one leaves go next.
#[test]
fn files_leave_that_are_read_all_the_time() {
    let mut world = World::new(18);
    world.mutable.cold_after_s.store(1 << 40, Ordering::Relaxed);
    world.target_file_size = 1 << 20;
    world.open();
    world.load(0..MANY, 1);
    world.db().flush().unwrap();
    // The next open removes the files that compactions have replaced.
    world.close();
    world.open();
    world.set_tier(Tier::Cold);
    let (files, _) = world.places();
    leave_a_third(&world);
    let mut moved = 0;
    // In less than a minute.
    for _ in 0..100 {
        moved += usize::from(world.db().tier_step().unwrap());
        check_some_rows(&world);
        world.pass(MINUTE_US / 120);
    }
    assert!(moved > files / 5 && moved < files / 2, "{moved} of {files}");
}

/// A file with a second name keeps its blocks, so it would leave for nothing.
#[test]
fn files_of_a_checkpoint_stay_on_a_full_disk() {
    let mut world = World::new(16);
    world.mutable.cold_after_s.store(1 << 40, Ordering::Relaxed);
    world.target_file_size = 1 << 20;
    world.open();
    world.load(0..MANY, 1);
    world.db().flush().unwrap();
    world.set_tier(Tier::Cold);
    let copy = Path::new("/copy");
    let remote = RemoteInCheckpoint::Named;
    { world.db() }.checkpoint_with(copy, false, remote).unwrap();
    leave_a_third(&world);
    assert_eq!(world.move_all(), 0);
    for name in world.env.list_dir(copy).unwrap() {
        world.env.remove(&copy.join(name)).unwrap();
    }
    world.env.remove_dir(copy).unwrap();
    // They are looked at again after a while.
    world.pass(2 * MINUTE_US);
    assert!(world.move_all() > 0);
    world.check_places();
    check_some_rows(&world);
}

#[test]
fn files_that_were_read_stay_if_the_store_is_on_the_same_disk() {
    let mut world = World::new(17);
    world.mutable.cold_after_s.store(1 << 40, Ordering::Relaxed);
    world.target_file_size = 1 << 20;
    world.shares_disk = true;
    world.open();
    world.load(0..MANY, 1);
    world.db().flush().unwrap();
    world.set_tier(Tier::Cold);
    leave_a_third(&world);
    assert_eq!(world.move_all(), 0);
    world.mutable.cold_after_s.store(0, Ordering::Relaxed);
    assert!(world.move_all() > 0);
}

/// The disk may run full while many objects are deleted, each with several requests.
#[test]
fn few_objects_are_deleted_between_two_moves() {
    let mut world = World::new(19);
    world.open();
    world.load(0..4000, 1);
    world.set_tier(Tier::Cold);
    let old = world.move_all() as u64;
    world.load(0..4000, 2);
    world.db().tier_step().unwrap();
    world.pass(11 * MINUTE_US);
    let deleted = |world: &World| world.cold().stats().deletes.requests;
    let before = deleted(&world);
    assert!(world.db().tier_step().unwrap());
    let first = deleted(&world) - before;
    assert!(
        first > 0 && first < 20 && first * 2 < old,
        "{first} of {old}"
    );
    world.move_all();
    assert_eq!(deleted(&world) - before, old);
}

/// Keys that are only read from memory are read.
#[test]
fn files_that_are_read_from_the_block_cache_are_not_cold() {
    let mut world = World::new(9);
    world.block_cache_bytes = 64 << 20;
    world.mutable.cold_after_s.store(3600, Ordering::Relaxed);
    world.open();
    world.load(0..1000, 1);
    world.check_rows(1000);
    world.set_tier(Tier::Cold);
    assert_eq!(world.move_all(), 0);
    for _ in 0..6 {
        world.pass(20 * MINUTE_US);
        while world.db().tier_step().unwrap() {}
        // The file with this row is in use, the others are not.
        assert_eq!(world.read(500).unwrap(), Some(1));
    }
    let (local, remote) = world.places();
    assert!(local == 1 && remote > 5, "{local} {remote}");
    world.pass(61 * MINUTE_US);
    assert_eq!(world.move_all(), 1);
}

/// Rights to store, and none to delete.
#[test]
fn deletions_that_fail_keep_no_file_from_moving() {
    let mut world = World::new(10);
    let store = MortalStore::new(&world.objects, u64::MAX, false);
    store.refuses_deletions.store(true, Ordering::SeqCst);
    let shared: Arc<dyn ObjectStore> = Arc::<MortalStore>::clone(&store);
    world.try_open(shared).unwrap();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    let files = world.move_all();
    world.load(0..1000, 2);
    world.pass(11 * MINUTE_US);
    let mut moved = 0;
    let error = loop {
        match world.db().tier_step() {
            Ok(true) => moved += 1,
            Ok(false) => world.pass(MINUTE_US),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("access denied"), "{error}");
    assert!(moved > 5);
    assert_eq!(world.manifest().deferred.len(), files);
    // One try a minute, and not one for each object.
    let (before, _) = world.objects.traffic();
    for _ in 0..50 {
        assert!(!world.db().tier_step().unwrap());
    }
    assert_eq!(world.objects.traffic().0, before);
    store.refuses_deletions.store(false, Ordering::SeqCst);
    world.pass(2 * MINUTE_US);
    world.check_nothing_left();
    world.check_rows(1000);
}

/// An upload that is refused again and again is an error that is reported, and the next step may do
/// something else.
#[test]
fn an_upload_that_is_refused_is_given_up_for_a_time() {
    let mut world = World::new(11);
    world.has_upload_thread = true;
    let store = MortalStore::new(&world.objects, u64::MAX, false);
    store.refuses_uploads.store(true, Ordering::SeqCst);
    let shared: Arc<dyn ObjectStore> = Arc::<MortalStore>::clone(&store);
    world.try_open(shared).unwrap();
    world.load(0..300, 1);
    world.set_tier(Tier::Cold);
    for _ in 0..2 {
        let error = world.db().tier_step().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("access denied"), "{error}");
    }
    world.set_tier(Tier::Local);
    assert!(!world.db().tier_step().unwrap());
    world.set_tier(Tier::Cold);
    store.refuses_uploads.store(false, Ordering::SeqCst);
    assert!(world.move_all() > 1);
    world.check_places();
    world.check_rows(300);
}

/// A checkpoint does not delete the objects of the database that it was made of.
#[test]
fn checkpoints_leave_out_what_is_to_be_deleted() {
    let mut world = World::new(12);
    world.open();
    world.load(0..300, 1);
    world.set_tier(Tier::Cold);
    world.move_all();
    world.set_tier(Tier::Local);
    world.move_all();
    assert!(!world.manifest().deferred.is_empty());
    world.db().checkpoint(Path::new("/copy"), true).unwrap();
    let copied = firn::version::load(&world.env, Path::new("/copy")).unwrap();
    let copied = copied.unwrap().state;
    assert!(copied.deferred.is_empty());
    assert_eq!(copied.files.len(), world.manifest().files.len());
}
