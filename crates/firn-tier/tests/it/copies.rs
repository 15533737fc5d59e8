//! Copies of a data directory, which share the id of the database with the original.

use crate::world::{HookedStore, MINUTE_US, STORE, World};
use bytes::Bytes;
use firn::base::options::Tier;
use firn::base::{Error, ErrorKind};
use firn::store::RemoteFiles;
use firn_objects::mem::{MemFiles, MemObjects};
use firn_objects::{Clock, Files, ObjectStore, Open};
use firn_tier::Ownership;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A closed database with all files of the last level in the store.
fn original(seed: u64) -> World {
    let mut world = World::new(seed);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    assert!(world.move_all() > 2);
    world.close();
    world
}

/// A copy of its data directory at `place`, with the same store.
fn copy_of(world: &World, seed: u64, place: &str) -> World {
    let mut copy = World::new(seed);
    copy.env = world.env.copy();
    copy.objects = Arc::clone(&world.objects);
    copy.rows = world.rows.clone();
    copy.place = place.to_owned();
    copy.cache_bytes = 0;
    copy
}

fn content(files: &MemFiles) -> Vec<u8> {
    let file = files.open(Path::new(STORE), Open::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn set_content(files: &MemFiles, how: Open, bytes: &[u8]) {
    let file = files.open(Path::new(STORE), how).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    files.sync_directory(Path::new("/")).unwrap();
}

fn is_refused(error: &Error) {
    assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("another copy"), "{error}");
}

/// Reads all rows. What the owner has deleted is refused, and nothing else is.
fn check_reads(world: &World) -> usize {
    let mut refused = 0;
    for n in 0..1000 {
        match world.read(n) {
            Ok(found) => assert_eq!(found, world.rows.get(&n).copied(), "row {n}"),
            Err(error) => {
                is_refused(&error);
                refused += 1;
            }
        }
    }
    refused
}

/// The copy reads what is there, and changes nothing of what the store has.
fn check_refused(copy: &mut World) {
    let before = copy.objects.contents();
    copy.open();
    if check_reads(copy) > 0 {
        is_refused(&copy.db().tier_step().unwrap_err());
        assert_eq!(copy.objects.contents(), before);
        return;
    }
    // Files of its own, with ids that files of the original get, too, and objects to delete.
    copy.try_write(&[(3, Some(9)), (5000, Some(9))]).unwrap();
    copy.db().compact_all().unwrap();
    assert!(!copy.manifest().deferred.is_empty());
    for tier in [Tier::Cold, Tier::Local] {
        copy.set_tier(tier);
        let _ = copy.db().tier_step();
        copy.pass(25 * 60 * MINUTE_US);
        let error = loop {
            match copy.db().tier_step() {
                Ok(moved) => assert!(moved),
                Err(error) => break error,
            }
        };
        is_refused(&error);
        assert_eq!(copy.cold().stats().ownership, Ownership::Others);
    }
    copy.check_rows(1000);
    assert_eq!(copy.objects.contents(), before);
}

fn check_well(world: &mut World) {
    world.open();
    world.check_rows(1000);
    world.set_tier(Tier::Cold);
    world.load(0..500, 2);
    world.move_all();
    world.check_rows(1000);
    world.check_places();
    world.check_nothing_left();
    world.close();
}

/// A restore of a backup makes a directory without the file of the owner.
#[test]
fn a_restored_directory_is_refused() {
    let mut world = original(31);
    let mut copy = copy_of(&world, 32, "here");
    check_refused(&mut copy);
    check_well(&mut world);
}

/// As `cp` makes it.
#[test]
fn a_copy_of_all_files_is_refused() {
    let mut world = original(33);
    // In the same place, after the original has moved away: other inodes.
    let mut copy = copy_of(&world, 34, "here");
    let other = copy.cache_files.open(Path::new("/other"), Open::New);
    drop(other.unwrap());
    set_content(
        &copy.cache_files,
        Open::Create,
        &content(&world.cache_files),
    );
    check_refused(&mut copy);
    copy.close();
    // A snapshot of the disk, on another machine.
    let mut copy = copy_of(&world, 35, "there");
    copy.cache_files = Arc::clone(&world.cache_files);
    check_refused(&mut copy);
    copy.close();
    check_well(&mut world);
}

/// The disk goes back to a snapshot that is older than the last start.
#[test]
fn a_snapshot_from_before_the_last_start_is_refused() {
    let mut world = original(36);
    let mut copy = copy_of(&world, 37, "here");
    let snapshot = content(&world.cache_files);
    check_well(&mut world);
    let newest = content(&world.cache_files);
    assert_ne!(snapshot, newest);
    copy.cache_files = Arc::clone(&world.cache_files);
    set_content(&copy.cache_files, Open::Write, &snapshot);
    copy.set_tier(Tier::Local);
    check_refused(&mut copy);
    copy.close();
    set_content(&world.cache_files, Open::Write, &newest);
    check_well(&mut world);
}

/// A clone of a machine that runs: nothing tells the clone from the original, but that the original
/// lives.
#[test]
fn a_clone_does_not_become_the_owner_while_the_original_lives() {
    let mut world = original(38);
    world.open();
    world.set_tier(Tier::Cold);
    world.load(0..1000, 2);
    world.move_all();
    let mut clone = clone_of(&world, 39);
    clone.load(0..10, 3);
    clone.set_tier(Tier::Cold);
    let before = world.objects.contents();
    for _ in 0..30 {
        let error = clone.db().tier_step().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("may still live"), "{error}");
        clone.pass(MINUTE_US);
        world.pass(MINUTE_US);
        world.db().tier_step().unwrap();
    }
    clone.check_rows(1000);
    let mut after = world.objects.contents();
    after.retain(|name, _| name != firn_tier::OWNER);
    let stays = |name: &String| after.contains_key(name) || name == firn_tier::OWNER;
    assert!(before.keys().filter(|name| stays(name)).count() > 2);
    world.check_rows(1000);
    world.check_places();
}

fn clone_of(world: &World, seed: u64) -> World {
    let mut clone = copy_of(world, seed, "here");
    clone.cache_files = Arc::clone(&world.cache_files);
    clone.open();
    clone
}

/// An original that was stopped for minutes (SIGSTOP, a suspended machine) learns that a clone is
/// the owner before it changes anything, and reads on.
#[test]
fn an_original_learns_that_a_clone_is_the_owner() {
    let mut world = original(40);
    world.cache_bytes = 0;
    world.open();
    world.try_write(&[(1, Some(5))]).unwrap();
    world.db().compact_all().unwrap();
    world.set_tier(Tier::Cold);
    world.move_all();
    let mut clone = clone_of(&world, 41);
    clone.set_tier(Tier::Cold);
    clone.load(0..1000, 3);
    assert!(clone.move_all() > 0, "it has waited");
    let before = world.objects.contents();
    world.try_write(&[(2, Some(6))]).unwrap();
    world.db().compact_all().unwrap();
    for _ in 0..3 {
        is_refused(&world.db().tier_step().unwrap_err());
        world.pass(11 * MINUTE_US);
    }
    assert_eq!(world.objects.contents(), before);
    assert_eq!(world.cold().stats().ownership, Ownership::Others);
    assert_eq!(clone.cold().stats().ownership, Ownership::Ours);
    world.check_rows(1000);
    clone.check_rows(1000);
    clone.check_places();
}

/// A world over a store with a hook, which is opened.
fn hooked(world: &mut World) -> Arc<HookedStore> {
    let store = Arc::new(HookedStore {
        store: Arc::clone(&world.objects),
        after_owner: Mutex::default(),
        before_put: Mutex::default(),
    });
    let shared: Arc<dyn ObjectStore> = Arc::<HookedStore>::clone(&store);
    world.try_open(shared).unwrap();
    store
}

/// An original that is stopped after it has asked who the owner is, and before it acts.
#[test]
fn an_original_that_is_stopped_before_a_change_does_not_make_it() {
    for change in ["delete", "upload", "beat"] {
        let mut world = original(50);
        world.cache_bytes = 0;
        let store = hooked(&mut world);
        world.set_tier(Tier::Cold);
        world.try_write(&[(1, Some(5))]).unwrap();
        world.db().compact_all().unwrap();
        world.move_all();
        match change {
            "delete" => world.pass(11 * MINUTE_US),
            "upload" => {
                world.try_write(&[(1, Some(6))]).unwrap();
                world.db().compact_all().unwrap();
            }
            _ => {}
        }
        let clone = Arc::new(Mutex::new(clone_of(&world, 51)));
        let (taking, clock) = (Arc::clone(&clone), Arc::clone(&world.clock));
        let objects = Arc::clone(&world.objects);
        let before = Arc::new(Mutex::new(Default::default()));
        let noted = Arc::clone(&before);
        let takes_over = move || {
            let mut clone = taking.lock().unwrap();
            clone.set_tier(Tier::Cold);
            clone.try_write(&[(2, Some(6))]).unwrap();
            clone.db().compact_all().unwrap();
            clone.move_all();
            assert_eq!(clone.cold().stats().ownership, Ownership::Ours);
            clock.sleep_us(5 * MINUTE_US);
            *noted.lock().unwrap() = objects.contents();
        };
        *store.after_owner.lock().unwrap() = Some(Box::new(takes_over));
        match change {
            "beat" => {
                world.pass(2 * MINUTE_US);
                world.cold().beat();
            }
            _ => is_refused(&world.db().tier_step().unwrap_err()),
        }
        assert!(store.after_owner.lock().unwrap().is_none(), "{change}");
        assert_eq!(
            world.objects.contents(),
            *before.lock().unwrap(),
            "{change}"
        );
        assert_eq!(
            world.cold().stats().ownership,
            Ownership::Others,
            "{change}"
        );
        clone.lock().unwrap().check_places();
    }
}

/// The put of a beat is executed when a clone has become the owner meanwhile. The original finds
/// its own token then, and changes nothing by it.
#[test]
fn a_late_put_of_an_original_makes_it_no_owner() {
    for change in ["delete", "upload", "confirm"] {
        let mut world = original(58);
        world.cache_bytes = 0;
        let store = hooked(&mut world);
        world.set_tier(Tier::Cold);
        world.try_write(&[(1, Some(5))]).unwrap();
        world.db().compact_all().unwrap();
        world.move_all();
        world.pass(11 * MINUTE_US);
        if change != "delete" {
            world.move_all();
            world.try_write(&[(1, Some(6))]).unwrap();
            world.db().compact_all().unwrap();
        }
        let clone = Arc::new(Mutex::new(clone_of(&world, 59)));
        let (taking, clock) = (Arc::clone(&clone), Arc::clone(&world.clock));
        let objects = Arc::clone(&world.objects);
        let before = Arc::new(Mutex::new(BTreeMap::new()));
        let noted = Arc::clone(&before);
        let takes_over = move || {
            let mut clone = taking.lock().unwrap();
            clone.set_tier(Tier::Cold);
            clone.try_write(&[(2, Some(6))]).unwrap();
            clone.db().compact_all().unwrap();
            clone.move_all();
            assert_eq!(clone.cold().stats().ownership, Ownership::Ours);
            clock.sleep_us(3 * MINUTE_US);
            *noted.lock().unwrap() = objects.contents();
        };
        *store.before_put.lock().unwrap() = Some(Box::new(takes_over));
        world.stop_for(MINUTE_US);
        if change == "confirm" {
            // The beat is not that of the step.
            world.cold().beat();
        }
        let unowned = |mut objects: BTreeMap<String, Bytes>| {
            objects.remove(firn_tier::OWNER);
            objects
        };
        let error = world.db().tier_step().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{change}: {error}");
        assert!(store.before_put.lock().unwrap().is_none(), "{change}");
        let left = unowned(world.objects.contents());
        assert_eq!(left, unowned(before.lock().unwrap().clone()), "{change}");
        // The clone goes on, and waits for nothing.
        let clone = clone.lock().unwrap();
        clone.db().tier_step().unwrap();
        for _ in 0..5 {
            clone.pass(MINUTE_US);
            world.stop_for(MINUTE_US + 1);
            world.db().tier_step().unwrap_err();
            assert_ne!(world.cold().stats().ownership, Ownership::Ours);
            assert_eq!(clone.cold().stats().ownership, Ownership::Ours);
        }
        clone.check_places();
        clone.check_rows(1000);
    }
}

/// A server that was stopped, and that nobody has replaced, is the owner again after two minutes.
#[test]
fn a_server_that_was_stopped_becomes_the_owner_again() {
    let mut world = original(60);
    world.open();
    world.set_tier(Tier::Cold);
    world.load(0..500, 2);
    world.move_all();
    world.stop_for(5 * MINUTE_US);
    world.load(0..500, 3);
    for _ in 0..2 {
        let error = world.db().tier_step().unwrap_err();
        assert!(error.to_string().contains("may still live"), "{error}");
        assert_eq!(world.cold().stats().ownership, Ownership::Unknown);
    }
    world.pass(2 * MINUTE_US);
    assert!(world.db().tier_step().unwrap());
    assert_eq!(world.cold().stats().ownership, Ownership::Ours);
    world.move_all();
    world.check_places();
    world.check_rows(1000);
    world.check_nothing_left();
}

/// A step that goes on while the database closes does not say again that the owner lives.
#[test]
fn an_owner_that_is_gone_stays_gone() {
    let mut world = original(61);
    world.open();
    world.set_tier(Tier::Cold);
    world.load(0..500, 2);
    world.move_all();
    let cold = Arc::clone(world.cold());
    world.close();
    world.stop_for(MINUTE_US);
    let gone = world.objects.get(firn_tier::OWNER).unwrap();
    assert!(String::from_utf8_lossy(&gone).contains(" gone"));
    cold.beat();
    assert!(cold.delete(1).unwrap_err().is_unreachable());
    assert_eq!(world.objects.get(firn_tier::OWNER).unwrap(), gone);
    // The next process waits for nothing.
    world.open();
    world.load(0..500, 3);
    assert!(world.db().tier_step().unwrap());
}

/// A put of an earlier owner is executed late. The owner says again that it is the one, before it
/// changes anything else.
#[test]
fn a_late_put_of_an_earlier_owner_makes_it_no_owner() {
    let mut world = original(52);
    world.open();
    world.set_tier(Tier::Cold);
    world.try_write(&[(1, Some(5))]).unwrap();
    world.db().compact_all().unwrap();
    world.move_all();
    let text = |world: &World| world.objects.get(firn_tier::OWNER).unwrap();
    let earlier = text(&world);
    let mut clone = clone_of(&world, 53);
    clone.set_tier(Tier::Cold);
    clone.try_write(&[(2, Some(6))]).unwrap();
    clone.db().compact_all().unwrap();
    clone.move_all();
    assert_ne!(text(&world), earlier);
    world
        .objects
        .put(firn_tier::OWNER, earlier.clone())
        .unwrap();
    clone.pass(11 * MINUTE_US);
    clone.db().tier_step().unwrap();
    assert_ne!(text(&world), earlier);
    // Not even a minute passes.
    world
        .objects
        .put(firn_tier::OWNER, earlier.clone())
        .unwrap();
    clone.try_write(&[(3, Some(7))]).unwrap();
    clone.db().compact_all().unwrap();
    assert!(clone.db().tier_step().unwrap());
    assert_ne!(text(&world), earlier);
    world.pass(2 * MINUTE_US);
    world.cold().beat();
    assert_eq!(world.cold().stats().ownership, Ownership::Others);
}

/// A sweep of a copy, or of a database without a store of its own, lists nothing.
#[test]
fn a_sweep_asks_first_whose_the_store_is() {
    let world = original(54);
    let mut copy = copy_of(&world, 55, "there");
    let mut stranger = World::new(56);
    stranger.cache_files = Arc::clone(&copy.cache_files);
    for world in [&mut copy, &mut stranger] {
        world.open();
        world.set_tier(Tier::Cold);
        let _ = world.db().tier_step();
        world.pass(11 * MINUTE_US);
        let _ = world.db().tier_step();
        world.pass(25 * 60 * MINUTE_US);
        let _ = world.db().tier_step();
        let stats = world.cold().stats();
        assert!(stats.gets.requests > 0);
        assert_eq!((stats.lists.requests, stats.deletes.requests), (0, 0));
        assert!(!world.has_cache(), "the cache was opened");
    }
}

/// A call of a network file system may never return.
#[test]
fn a_close_does_not_wait_for_a_store_that_hangs() {
    let mut world = original(57);
    world.close_patience = Duration::from_millis(50);
    let store = hooked(&mut world);
    world.set_tier(Tier::Cold);
    world.try_write(&[(1, Some(5))]).unwrap();
    world.db().compact_all().unwrap();
    world.move_all();
    let (release, released) = mpsc::channel::<()>();
    let hangs = move || {
        let _ = released.recv();
    };
    *store.after_owner.lock().unwrap() = Some(Box::new(hangs));
    let before = world.objects.contents();
    world.close();
    assert!(store.after_owner.lock().unwrap().is_none(), "it has asked");
    assert_eq!(world.objects.contents(), before);
    drop(release);
    // It has not said that it is gone, so the next one waits.
    world.open();
    world.check_rows(1000);
    world.load(0..10, 2);
    assert!(world.move_all() > 0);
}

/// An object that another owner has deleted is not damaged.
#[test]
fn an_object_that_the_owner_has_deleted_is_no_damage() {
    let mut world = original(42);
    world.cache_bytes = 0;
    world.open();
    world.check_rows(10);
    let mut clone = clone_of(&world, 43);
    clone.set_tier(Tier::Cold);
    clone.load(0..1000, 3);
    clone.move_all();
    clone.check_nothing_left();
    // The original does not know the token of the clone, which has written its file of the owner.
    let snapshot = content(&world.cache_files);
    let text = String::from_utf8(snapshot).unwrap();
    let tokens: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("token"))
        .collect();
    let text = text.replace(&format!("{}\n", tokens[0]), "");
    set_content(&world.cache_files, Open::Write, text.as_bytes());
    let lost = (0..1000).filter_map(|n| world.read(n).err());
    let lost: Vec<Error> = lost.collect();
    assert!(!lost.is_empty());
    lost.iter().for_each(is_refused);
    world.try_write(&[(3, Some(4))]).unwrap();
    is_refused(&world.db().compact_all().unwrap_err());
    let version = firn::db::current_version(world.db());
    assert!(version.quarantine().is_empty());
}

/// The way out for a copy whose original is gone.
#[test]
fn without_the_object_of_the_owner_a_copy_becomes_the_owner() {
    let world = original(44);
    let mut copy = copy_of(&world, 45, "there");
    check_refused(&mut copy);
    copy.close();
    copy.objects.delete(firn_tier::OWNER).unwrap();
    check_well(&mut copy);
    // And the original is the copy from now on.
    let mut world = copy_of(&world, 46, "here");
    let before = copy.objects.contents();
    world.open();
    world.set_tier(Tier::Local);
    world.try_write(&[(3, Some(9))]).unwrap();
    let _ = world.db().compact_all();
    world.pass(11 * MINUTE_US);
    let _ = world.db().tier_step();
    assert_eq!(copy.objects.contents(), before);
}

/// A directory that is not mounted looks like an empty store.
#[test]
fn a_database_with_remote_files_takes_no_empty_store() {
    let mut world = original(47);
    let (ours, clock) = (Arc::clone(&world.objects), Arc::clone(&world.clock));
    world.cache_bytes = 0;
    world.objects = Arc::new(MemObjects::new(1, clock));
    world.open();
    world.set_tier(Tier::Cold);
    world.try_write(&[(5000, Some(1))]).unwrap();
    world.db().flush().unwrap();
    let is_nobodys = |error: Error| {
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("mounted"), "{error}");
    };
    is_nobodys(world.read(3).unwrap_err());
    // It has a new file to send away.
    world.db().compact_all().unwrap();
    is_nobodys(world.db().tier_step().unwrap_err());
    world.set_tier(Tier::Local);
    is_nobodys(world.db().tier_step().unwrap_err());
    assert!(world.objects.contents().is_empty());
    world.close();
    world.objects = ours;
    check_well(&mut world);
}

/// The database has used the store before, and has nothing there now. The directory of the store is
/// not mounted when it starts again.
#[test]
fn a_store_that_was_used_before_is_not_taken_while_it_is_empty() {
    let mut world = original(46);
    let (ours, clock) = (Arc::clone(&world.objects), Arc::clone(&world.clock));
    world.cache_bytes = 0;
    world.open();
    world.set_tier(Tier::Local);
    world.move_all();
    world.pass(80 * MINUTE_US);
    world.move_all();
    let ssts = |objects: &MemObjects| {
        let contents = objects.contents();
        contents
            .keys()
            .filter(|name| name.starts_with("sst/"))
            .count()
    };
    assert_eq!(ssts(&ours), 0);
    world.close();
    world.objects = Arc::new(MemObjects::new(1, clock));
    world.open();
    world.set_tier(Tier::Cold);
    world.try_write(&[(5000, Some(1))]).unwrap();
    world.db().compact_all().unwrap();
    let error = world.db().tier_step().unwrap_err();
    assert!(error.to_string().contains("mounted"), "{error}");
    assert!(world.objects.contents().is_empty());
    world.close();
    world.objects = ours;
    check_well(&mut world);
}

/// The directory of the store is unmounted while the database is open.
#[test]
fn a_store_that_goes_away_is_neither_filled_nor_taken_for_damaged() {
    let mut world = World::new(48);
    world.cache_bytes = 0;
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    for _ in 0..3 {
        assert!(world.db().tier_step().unwrap());
    }
    let kept = world.objects.contents();
    for name in kept.keys() {
        world.objects.delete(name).unwrap();
    }
    for _ in 0..2 {
        let error = world.db().tier_step().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
        world.pass(11 * MINUTE_US);
    }
    let errors: Vec<Error> = (0..1000).filter_map(|n| world.read(n).err()).collect();
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
    }
    let error = world.db().compact_all();
    assert!(error.is_ok() || error.is_err_and(|error| error.is_unreachable()));
    assert!(world.objects.contents().is_empty());
    // It is mounted again.
    for (name, bytes) in kept {
        world.objects.put(&name, bytes).unwrap();
    }
    world.check_rows(1000);
    world.check_places();
    world.move_all();
    world.check_rows(1000);
}

/// The cache keeps its chunks of an object that is gone.
#[test]
fn an_object_that_is_gone_leaves_the_cache_alone() {
    let mut world = original(49);
    world.cache_bytes = 64 << 20;
    world.open();
    world.check_rows(500);
    let names: Vec<String> = world
        .object_names()
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    for name in &names {
        world.objects.delete(name).unwrap();
    }
    let readable = |world: &World| (0..1000).filter(|n| world.read(*n).is_ok()).count();
    let before = readable(&world);
    assert!((500..1000).contains(&before), "{before}");
    for _ in 0..3 {
        assert_eq!(readable(&world), before);
    }
}

/// Files must leave a disk that is full, also when the server has started again.
#[test]
fn a_database_on_a_full_disk_becomes_the_owner_and_reads() {
    let mut world = original(62);
    world.cache_files.set_room(0);
    world.cache_bytes = 4 << 20;
    assert!(!world.has_cache());
    world.cache_files.refuse_directories(true);
    for round in 0..3 {
        world.open();
        world.check_rows(1000);
        let failure = world.cold().stats().cache_failure;
        assert!(failure.unwrap().contains(crate::world::CACHE));
        world.set_tier(Tier::Cold);
        world.load(0..500, 2 + round);
        assert!(world.move_all() > 0);
        assert_eq!(world.cold().stats().ownership, Ownership::Ours);
        world.check_places();
        world.check_rows(1000);
        world.close();
        world.cache_files.crash();
    }
    // With room, there is a cache again after a while.
    world.open();
    world.check_rows(1000);
    assert!(!world.has_cache());
    world.cache_files.refuse_directories(false);
    world.cache_files.set_room(u64::MAX);
    world.pass(2 * MINUTE_US);
    world.check_rows(1000);
    let stats = world.cold().stats();
    assert_eq!(stats.cache_failure, None);
    assert!(stats.cache.hits > 0);
}

/// The file of the owner is written into a spare that has its blocks.
#[test]
fn the_error_of_a_full_disk_names_the_file() {
    let mut world = World::new(63);
    world.open();
    world.load(0..300, 1);
    world.set_tier(Tier::Cold);
    // It has never been written.
    world.cache_files.set_room(0);
    let error = world.db().tier_step().unwrap_err();
    assert!(error.to_string().contains(STORE), "{error}");
    world.cache_files.set_room(u64::MAX);
    assert!(world.move_all() > 0);
}
