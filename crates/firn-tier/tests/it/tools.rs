//! Checkpoints, checks and repairs of a database with remote files.

use crate::world::{MINUTE_US, World};
use firn::backup::RemoteInCheckpoint;
use firn::base::options::Tier;
use firn::base::{Error, ErrorKind};
use firn::db::{ReadOnlyDb, repair};
use firn::env::Env;
use firn::store::RemoteFiles;
use firn::version::FileLocation;
use firn_objects::ObjectStore;
use firn_tier::object_name;
use std::path::Path;
use std::sync::Arc;

const COPY: &str = "/copy";

/// A database of which half of the files are in the store.
fn half_remote(seed: u64) -> World {
    let mut world = World::new(seed);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    let files = world.places().0;
    for _ in 0..files / 2 {
        assert!(world.db().tier_step().unwrap());
    }
    world.try_write(&[(5, Some(7)), (2000, Some(8))]).unwrap();
    world
}

fn names(world: &World, dir: &str) -> Vec<String> {
    world.env.list_dir(Path::new(dir)).unwrap()
}

/// The database in `dir`, of the same environment, has the rows of the model.
fn check_copy(world: &World, dir: &str) {
    let copy = world.open_without_store(dir).unwrap();
    for n in 0..2001 {
        let found = World::read_of(&copy, n).unwrap();
        assert_eq!(found, world.rows.get(&n).copied(), "row {n}");
    }
    copy.close().unwrap();
}

#[test]
fn a_checkpoint_stands_alone() {
    let world = half_remote(201);
    let (local, remote) = world.places();
    let before = world.objects.contents();
    let made = world.db().checkpoint(Path::new(COPY), false).unwrap();
    assert_eq!(made.files as usize, local + remote);
    assert_eq!(made.copied_bytes, world.db().places().remote.bytes);
    let state = { firn::version::load(&world.env, Path::new(COPY)) }.unwrap();
    let placed = state.unwrap().state.files.into_values();
    let is_local = |meta: &firn::version::FileMeta| meta.location == FileLocation::Local;
    assert!(placed.into_iter().all(|placed| is_local(&placed.meta)));
    check_copy(&world, COPY);
    assert!(world.objects.contents() == before);
    // The database is as it was.
    assert_eq!(world.places().1, remote);
    world.move_all();
    world.check_places();
    world.check_nothing_left();
    world.check_rows(2001);
}

/// A copy may take hours: other checkpoints do not wait for it, and no object goes meanwhile.
#[test]
fn another_checkpoint_is_made_during_a_copy() {
    let world = half_remote(206);
    let (_, remote) = world.places();
    let mut begun = false;
    let mut meanwhile = |_: u64, _: u64| -> firn::base::Result<()> {
        if std::mem::replace(&mut begun, true) {
            return Ok(());
        }
        let again = world
            .db()
            .checkpoint(Path::new("/elsewhere/.././copy"), false);
        assert_eq!(*again.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let other = Path::new("/other");
        let made = { world.db() }.checkpoint_with(other, false, RemoteInCheckpoint::Named);
        assert_eq!(made?.remote_files as usize, remote);
        for name in names(&world, "/other") {
            world.env.remove(&other.join(name))?;
        }
        world.env.remove_dir(other)?;
        // Nobody needs the objects but this copy.
        world.set_tier(Tier::Local);
        world.move_all();
        for _ in 0..3 {
            world.pass(11 * MINUTE_US);
            world.db().tier_step()?;
        }
        Ok(())
    };
    let copied = RemoteInCheckpoint::Copied(&mut meanwhile);
    { world.db() }
        .checkpoint_with(Path::new(COPY), false, copied)
        .unwrap();
    assert!(begun);
    check_copy(&world, COPY);
    // Afterwards the objects go, and the name is free again.
    world.check_nothing_left();
    let again = world.db().checkpoint(Path::new("/again/copy"), false);
    assert_eq!(*again.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_checkpoint_that_cannot_copy_leaves_nothing() {
    let world = half_remote(202);
    let refused = |world: &World| -> Error {
        let error = world.db().checkpoint(Path::new(COPY), false).unwrap_err();
        for dir in [COPY, "/copy.tmp"] {
            assert!(!world.env.exists(Path::new(dir)).unwrap(), "{dir}");
        }
        error
    };
    // A quarter of the disk stays free.
    world.env.fill();
    world.env.make_room(200 << 10);
    let error = refused(&world);
    assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("stay free"), "{error}");
    world.env.unfill();

    let mut stopped = |done: u64, total: u64| match done > total / 2 {
        true => Err(Error::new(ErrorKind::Interrupted, "enough")),
        false => Ok(()),
    };
    let remote = RemoteInCheckpoint::Copied(&mut stopped);
    let error = world.db().checkpoint_with(Path::new(COPY), false, remote);
    assert_eq!(*error.unwrap_err().kind(), ErrorKind::Interrupted);
    assert!(!world.env.exists(Path::new("/copy.tmp")).unwrap());

    world.objects.go_out(30 * MINUTE_US);
    assert!(refused(&world).is_unreachable());
    world.pass(31 * MINUTE_US);
    let state = world.manifest();
    let remote = { state.files.iter() }
        .find(|(_, placed)| placed.meta.location == FileLocation::ObjectStore);
    let (id, placed) = remote.unwrap();
    let object = object_name(*id, placed.meta.checksum);
    assert!(world.objects.damage(&object, 100));
    let ErrorKind::Corruption { file, .. } = refused(&world).kind().clone() else {
        panic!("no damage");
    };
    assert_eq!(file, format!("{id:010}.sst"));
}

/// A copy that takes hours is not the only one that takes room.
#[test]
fn a_copy_looks_for_room_before_each_file() {
    let world = half_remote(208);
    world.move_all();
    assert!(world.places().1 > 1);
    let mut is_full = false;
    let mut fill = |_, total: u64| {
        if !std::mem::replace(&mut is_full, true) {
            world.env.fill();
            world.env.make_room(total);
        }
        Ok(())
    };
    let remote = RemoteInCheckpoint::Copied(&mut fill);
    let made = { world.db() }.checkpoint_with(Path::new(COPY), false, remote);
    let error = made.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("stay free"), "{error}");
    assert!(!world.env.exists(Path::new("/copy.tmp")).unwrap());
}

/// Files that come back do not get the room that a copy has yet to take.
#[test]
fn files_that_come_back_leave_a_copy_its_room() {
    let world = half_remote(209);
    // The next open would remove what the files that have left have left behind.
    world.db().flush().unwrap();
    let mut world = world;
    world.close();
    world.open();
    world.set_tier(Tier::Local);
    world.env.fill();
    world.env.make_room(64 << 20);
    let ballast = Path::new("/ballast");
    let mut refused = None;
    let mut look = |_, total: u64| {
        // Others leave as much as is to be free at the end, and no more.
        let room = world.env.disk_room(Path::new("/db")).unwrap().unwrap();
        let others = room.free - room.total / 4 - total;
        let mut file = world.env.create(ballast).unwrap();
        file.append(&vec![1; others as usize]).unwrap();
        refused = Some(world.db().tier_step().unwrap_err());
        Err(Error::new(ErrorKind::Interrupted, "enough"))
    };
    let remote = RemoteInCheckpoint::Copied(&mut look);
    let made = { world.db() }.checkpoint_with(Path::new(COPY), false, remote);
    assert_eq!(*made.unwrap_err().kind(), ErrorKind::Interrupted);
    let refused = refused.unwrap();
    assert_eq!(*refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(
        refused.to_string().contains("copies under way"),
        "{refused}"
    );
    // The copy has ended.
    world.env.remove(ballast).unwrap();
    assert!(world.db().tier_step().unwrap());
}

/// As it is made while commits wait: copies would keep them waiting, and names would not stand
/// alone.
#[test]
fn a_checkpoint_may_refuse_remote_files() {
    let mut world = half_remote(205);
    let (_, remote) = world.places();
    let target = Path::new(COPY);
    let refused = { world.db() }.checkpoint_with(target, false, RemoteInCheckpoint::Refused);
    let refused = refused.unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");
    assert!(
        refused
            .to_string()
            .contains(&format!("{remote} table files")),
        "{refused}"
    );
    for dir in [COPY, "/copy.tmp"] {
        assert!(!world.env.exists(Path::new(dir)).unwrap(), "{dir}");
    }
    world.set_tier(Tier::Local);
    world.move_all();
    let made = { world.db() }.checkpoint_with(target, false, RemoteInCheckpoint::Refused);
    assert_eq!(made.unwrap().remote_files, 0);
    world.close();
    check_copy(&world, COPY);
}

/// As `firn backup` has it made, which sends the objects itself.
#[test]
fn a_checkpoint_that_names_objects_keeps_them() {
    let mut world = half_remote(203);
    let (_, remote) = world.places();
    let target = Path::new(COPY);
    let made = { world.db() }.checkpoint_with(target, false, RemoteInCheckpoint::Named);
    let made = made.unwrap();
    assert_eq!((made.remote_files as usize, made.copied_bytes), (remote, 0));
    let state = firn::version::load(&world.env, target)
        .unwrap()
        .unwrap()
        .state;
    let of_copy = state.files.iter();
    let named: Vec<String> = of_copy
        .filter(|(_, placed)| placed.meta.location == FileLocation::ObjectStore)
        .map(|(id, placed)| object_name(*id, placed.meta.checksum))
        .collect();
    assert_eq!(named.len(), remote);
    assert_eq!(world.db().objects_held_by().as_deref(), Some(target));
    let count = |world: &World| {
        let there = world.objects.contents();
        named
            .iter()
            .filter(|name| there.contains_key(*name))
            .count()
    };
    // All are replaced, and nothing is deleted.
    world.load(0..1000, 3);
    for _ in 0..10 {
        world.pass(30 * MINUTE_US);
        world.move_all();
        world.pass(24 * 60 * MINUTE_US);
    }
    assert_eq!(count(&world), remote);
    assert!(world.db().places().objects_to_delete >= remote as u64);
    // A second one that has failed holds nothing.
    let again = { world.db() }.checkpoint_with(target, false, RemoteInCheckpoint::Named);
    assert_eq!(*again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    for name in names(&world, COPY) {
        world.env.remove(&target.join(name)).unwrap();
    }
    world.env.remove_dir(target).unwrap();
    world.move_all();
    world.pass(11 * MINUTE_US);
    world.move_all();
    assert_eq!(count(&world), 0);
    assert_eq!(world.db().objects_held_by(), None);
    world.check_nothing_left();
}

fn no_loss(error: Error) {
    panic!("{error}");
}

/// A crash may cut the last edits off a manifest. Files that they have moved are where they say.
#[test]
fn a_repair_finds_files_where_they_are() {
    for is_back in [false, true] {
        let mut world = half_remote(207);
        world.db().flush().unwrap();
        // The next open removes what the files that have left have left behind.
        world.close();
        world.open();
        let dir = Path::new("/db");
        let manifest = || {
            let names = world.env.list_dir(dir).unwrap();
            let mut names = names.into_iter();
            let name = names
                .rfind(|name| firn::version::parse_manifest_name(name).is_some())
                .unwrap();
            let bytes = world.env.read(&dir.join(&name)).unwrap();
            (name, bytes)
        };
        let before = manifest();
        world.set_tier(if is_back { Tier::Local } else { Tier::Cold });
        assert!(world.move_all() > 0);
        assert!(!is_back || world.places().1 == 0);
        // The remains of files go, in the store and in the directory.
        for _ in 0..3 {
            world.pass(11 * MINUTE_US);
            let _ = world.db().tier_step();
        }
        let after = manifest();
        assert_eq!(before.0, after.0, "the same manifest");
        assert!(after.1.starts_with(&before.1) && after.1.len() > before.1.len());
        world.close();
        let write = |name: &str, bytes: &[u8]| {
            let mut file = world.env.create(&dir.join(name)).unwrap();
            file.append(bytes).unwrap();
            file.sync().unwrap();
        };
        write(&before.0, &before.1);
        write("STORE", b"");
        let look = || {
            let env: Arc<dyn Env> = Arc::new(world.env.clone());
            ReadOnlyDb::open(env, dir).unwrap()
        };
        let alone = repair(&look(), Path::new("/alone"), &mut no_loss);
        match is_back {
            true => {
                alone.unwrap();
                check_copy(&world, "/alone");
            }
            false => assert!(alone.unwrap_err().is_unsupported()),
        }
        let store: Arc<dyn ObjectStore> = Arc::clone(&world.objects) as _;
        let with_store = look().with_remote(world.cold_store(store));
        repair(&with_store, Path::new("/new"), &mut no_loss).unwrap();
        check_copy(&world, "/new");
    }
}

/// A manifest that has lost a compaction names files that are neither here nor in the store. Their
/// rows are in a newer file that it does not name.
#[test]
fn a_repair_does_not_take_compacted_files_for_remote_ones() {
    let mut world = World::new(208);
    world.open();
    world.load(0..1000, 1);
    world.set_tier(Tier::Cold);
    assert!(world.db().tier_step().unwrap());
    world.set_tier(Tier::Local);
    assert!(world.move_all() > 0);
    world.close();
    world.open();
    let dir = Path::new("/db");
    let names = world.env.list_dir(dir).unwrap();
    let is_manifest = |name: &String| firn::version::parse_manifest_name(name).is_some();
    let manifest = names.into_iter().rfind(is_manifest).unwrap();
    let before = world.env.read(&dir.join(&manifest)).unwrap();
    let all: Vec<_> = (0..1000).map(|n| (n, Some(n + 2))).collect();
    world.try_write(&all).unwrap();
    world.db().flush().unwrap();
    world.db().compact_all().unwrap();
    world.close();
    for (name, bytes) in [(&manifest[..], &before[..]), ("STORE", b"")] {
        let mut file = world.env.create(&dir.join(name)).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }
    let env: Arc<dyn Env> = Arc::new(world.env.clone());
    let store: Arc<dyn ObjectStore> = Arc::clone(&world.objects) as _;
    let damaged = ReadOnlyDb::open(env, dir).unwrap();
    let damaged = damaged.with_remote(world.cold_store(store));
    let mut losses = Vec::new();
    let mut lost = |error: Error| losses.push(error.to_string());
    let refused = repair(&damaged, Path::new("/new"), &mut lost).unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");
    assert!(
        losses.iter().any(|loss| loss.contains("edits are lost")),
        "{losses:?}"
    );
}

#[test]
fn a_repair_copies_remote_files() {
    let mut world = half_remote(204);
    world.close();
    let before = world.objects.contents();
    let look = |world: &World| {
        let env: Arc<dyn Env> = Arc::new(world.env.clone());
        ReadOnlyDb::open(env, Path::new("/db")).unwrap()
    };
    let refused = repair(&look(&world), Path::new("/refused"), &mut no_loss).unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");

    let store = |world: &World| -> Arc<dyn RemoteFiles> {
        let store: Arc<dyn ObjectStore> = Arc::clone(&world.objects) as _;
        world.cold_store(store)
    };
    let with_store = |world: &World| look(world).with_remote(store(world));
    // An outage is no loss.
    world.objects.go_out(30 * MINUTE_US);
    let error = repair(&with_store(&world), Path::new("/unreachable"), &mut no_loss).unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    world.pass(31 * MINUTE_US);

    repair(&with_store(&world), Path::new("/new"), &mut no_loss).unwrap();
    check_copy(&world, "/new");
    assert!(world.objects.contents() == before);
    let names = names(&world, "/db");
    assert!(!names.contains(&"file-cache".to_owned()));

    // Rows of a damaged object are lost, and all others are there.
    let state = world.manifest();
    let is_remote =
        |placed: &&firn::version::PlacedFile| placed.meta.location == FileLocation::ObjectStore;
    let placed = state.files.values().find(is_remote).unwrap();
    let object = object_name(placed.meta.file_id, placed.meta.checksum);
    assert!(world.objects.damage(&object, 100));
    let mut losses = Vec::new();
    let lost = &mut |error: Error| losses.push(error);
    repair(&with_store(&world), Path::new("/damaged"), lost).unwrap();
    assert!(!losses.is_empty());
    assert!(losses.iter().all(Error::is_corruption), "{losses:?}");
    let copy = world.open_without_store("/damaged").unwrap();
    let left = (0..1000).filter(|n| World::read_of(&copy, *n).unwrap().is_some());
    let left = left.count();
    assert!((900..1000).contains(&left), "{left}");
}
