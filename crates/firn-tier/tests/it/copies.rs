//! Copies of a data directory, which share the id of the database with the original.

use crate::world::{MINUTE_US, STORE, World};
use firn::base::options::Tier;
use firn::base::{Error, ErrorKind};
use firn_objects::mem::MemFiles;
use firn_objects::{Files, ObjectStore, Open};
use std::path::Path;
use std::sync::Arc;

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
    copy.env = world.env.crash(seed);
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

/// The copy neither reads nor changes what the store has; its own rows it has.
fn check_refused(copy: &mut World) {
    let before = copy.objects.contents();
    copy.open();
    is_refused(&copy.read(3).unwrap_err());
    copy.try_write(&[(3, Some(9))]).unwrap();
    assert_eq!(copy.read(3).unwrap(), Some(9));
    is_refused(&copy.db().compact_all().unwrap_err());
    // A file of its own, which has an id that a file of the original gets, too.
    copy.try_write(&[(5000, Some(9))]).unwrap();
    copy.db().flush().unwrap();
    for tier in [Tier::Local, Tier::Cold] {
        copy.set_tier(tier);
        let _ = copy.db().tier_step();
        copy.pass(25 * 60 * MINUTE_US);
        is_refused(&copy.db().tier_step().unwrap_err());
    }
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
    check_refused(&mut copy);
    copy.close();
    set_content(&world.cache_files, Open::Write, &newest);
    check_well(&mut world);
}

/// A clone of a machine that runs: nothing tells the clone from the original. The one that was
/// started last is the owner, and the other learns it before it changes anything.
#[test]
fn an_original_learns_that_a_clone_is_the_owner() {
    let mut world = original(38);
    world.cache_bytes = 0;
    world.open();
    world.check_rows(1000);
    world.try_write(&[(1, Some(5))]).unwrap();
    let mut clone = copy_of(&world, 39, "here");
    clone.cache_files = Arc::clone(&world.cache_files);
    clone.cache_bytes = 1 << 20;
    clone.open();
    clone.check_rows(1000);

    let before = world.objects.contents();
    world.db().compact_all().unwrap();
    world.set_tier(Tier::Cold);
    is_refused(&world.db().tier_step().unwrap_err());
    is_refused(&world.db().tier_step().unwrap_err());
    world.pass(11 * MINUTE_US);
    is_refused(&world.db().tier_step().unwrap_err());
    assert_eq!(world.objects.contents(), before);
    // The clone goes on.
    clone.set_tier(Tier::Cold);
    clone.load(0..1000, 3);
    clone.move_all();
    clone.check_rows(1000);
    clone.check_places();
}

/// What the owner has deleted is not damaged.
#[test]
fn an_object_that_the_owner_has_deleted_is_no_damage() {
    let mut world = original(40);
    world.cache_bytes = 0;
    world.open();
    world.check_rows(10);
    let mut clone = copy_of(&world, 41, "here");
    clone.cache_files = Arc::clone(&world.cache_files);
    clone.cache_bytes = 1 << 20;
    clone.open();
    clone.load(0..1000, 3);
    clone.check_nothing_left();
    let lost = (0..1000).filter_map(|n| world.read(n).err());
    let lost: Vec<Error> = lost.collect();
    assert!(!lost.is_empty());
    lost.iter().for_each(is_refused);
    let version = firn::db::current_version(world.db());
    assert!(version.quarantine().first().is_none());
}

/// The way out for a copy whose original is gone.
#[test]
fn without_the_object_of_the_owner_a_copy_becomes_the_owner() {
    let mut world = original(42);
    let mut copy = copy_of(&world, 43, "there");
    check_refused(&mut copy);
    copy.close();
    copy.objects.delete(firn_tier::OWNER).unwrap();
    copy.rows.insert(3, 9);
    copy.rows.insert(5000, 9);
    copy.set_tier(Tier::Local);
    check_well(&mut copy);
    // And the original is the copy from now on.
    world.cache_bytes = 0;
    world.cache_files.crash();
    check_refused(&mut world);
}
