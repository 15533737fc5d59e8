use super::*;
use crate::env::{SystemClock, SystemFiles};
use crate::mem::{HookedFiles, MemFiles, VirtualClock};
use crate::random::SplitMix64;
use crate::retry::{Deadlines, Retrying};
use crate::store::for_each_page;
use std::collections::BTreeMap;
use std::sync::Barrier;

const ROOT: &str = "/shared/firn";

fn in_memory(seed: u64) -> (Arc<MemFiles>, DirStore) {
    let files = Arc::new(MemFiles::new(seed, &[ROOT]));
    let store = reopen(&files, seed);
    (files, store)
}

fn reopen(files: &Arc<MemFiles>, seed: u64) -> DirStore {
    let clock = Arc::new(VirtualClock::new(seed));
    DirStore::open(ROOT.into(), files.clone(), clock).unwrap()
}

fn on_disk(root: &Path) -> DirStore {
    let clock = Arc::new(SystemClock::new());
    DirStore::open(root.to_owned(), Arc::new(SystemFiles), clock).unwrap()
}

fn contents(store: &DirStore) -> BTreeMap<String, Bytes> {
    let mut all = BTreeMap::new();
    for_each_page(
        |token| store.list_page("", token),
        |object: ObjectInfo| {
            let bytes = store.get(&object.name).unwrap();
            assert_eq!(bytes.len() as u64, object.bytes);
            all.insert(object.name, bytes);
        },
    )
    .unwrap();
    all
}

fn leftovers(store: &DirStore) -> Vec<UploadInfo> {
    store.list_uploads_page("", None).unwrap().items
}

/// The contract of all implementations, on a real disk.
#[test]
fn objects_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path());
    store.put("a/b/c", Bytes::from_static(b"one")).unwrap();
    store.put("a/b/c", Bytes::from_static(b"three")).unwrap();
    assert_eq!(
        store.put_new("a/b/c", Bytes::from_static(b"x")).unwrap(),
        PutNew::Exists
    );
    assert_eq!(
        store.put_new("a/new", Bytes::new()).unwrap(),
        PutNew::Created
    );
    assert_eq!(store.get("a/b/c").unwrap(), "three");
    assert_eq!(store.get_range("a/b/c", 1..3).unwrap(), "hr");
    assert_eq!(
        store.get_ranges("a/b/c", &[0..1, 4..5, 2..2]).unwrap(),
        ["t", "e", ""]
    );
    assert_eq!(
        store.get_range("a/b/c", 3..9).unwrap_err().kind(),
        ErrorKind::Damaged
    );
    let head = store.head("a/b/c").unwrap();
    assert_eq!(head.bytes, 5);
    assert!(head.modified_s.abs_diff(SystemClock::new().unix_s()) < 1000);
    store.delete("a/b/c").unwrap();
    store.delete("a/b/c").unwrap();
    assert_eq!(store.get("a/b/c").unwrap_err().kind(), ErrorKind::Absent);
    assert_eq!(store.head("a/b/c").unwrap_err().kind(), ErrorKind::Absent);
    assert_eq!(store.get("../etc").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(contents(&store).into_keys().collect::<Vec<_>>(), ["a/new"]);
    assert_eq!(leftovers(&store), []);
}

#[test]
fn pages_list_names_in_order() {
    let (_files, store) = in_memory(1);
    let mut random = SplitMix64::new(7);
    let mut names = Vec::new();
    for _ in 0..3000 {
        let part = |random: &mut SplitMix64| ["a", "b-", "b", "b.c", "c"][random.below(5) as usize];
        let (x, y) = (part(&mut random), part(&mut random));
        let name = format!("{x}/{y}{}", random.below(1000));
        store.put(&name, Bytes::new()).unwrap();
        names.push(name);
    }
    names.sort();
    names.dedup();
    assert!(names.len() > 2500);
    for prefix in ["", "b", "b/", "b/b", "b-/c", "c/c9", "d"] {
        let mut listed = Vec::new();
        let page = |token: Option<&str>| store.list_page(prefix, token);
        for_each_page(page, |object: ObjectInfo| listed.push(object.name)).unwrap();
        let expected = names.iter().filter(|name| name.starts_with(prefix));
        assert!(expected.eq(&listed), "{prefix:?}");
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // Somebody else makes these files.
fn what_has_no_name_of_an_object_is_not_listed() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path());
    store.put("sst/1", Bytes::new()).unwrap();
    std::fs::create_dir(directory.path().join("lost+found")).unwrap();
    for name in ["lost+found/x", "sst/two words", "sst/.hidden"] {
        std::fs::write(directory.path().join(name), "x").unwrap();
    }
    assert_eq!(contents(&store).into_keys().collect::<Vec<_>>(), ["sst/1"]);
}

/// The object has its name already, so "no effect" would be a lie; and the next try finds itself.
#[test]
fn a_directory_that_is_not_synced_leaves_open_whether_the_object_is_there() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::NotFound] {
        let (files, clock) = (MemFiles::new(1, &[ROOT]), Arc::new(VirtualClock::new(1)));
        let files = Arc::new(HookedFiles::new(Arc::new(files)));
        let store = DirStore::open(ROOT.into(), files.clone(), clock.clone()).unwrap();
        store.put("log/0", Bytes::new()).unwrap();
        files.fail_next_directory_sync(kind);
        let error = store.put_new("log/1", Bytes::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        let retrying = Retrying::new(Arc::new(store), clock, Deadlines::default());
        files.fail_next_directory_sync(kind);
        let told = retrying.put_new("log/2", Bytes::from_static(b"mine"));
        assert_eq!(told.unwrap(), PutNew::Created);
    }
}

#[test]
fn a_put_without_the_directory_of_the_store_may_succeed_later() {
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path());
    std::fs::remove_dir(directory.path()).unwrap();
    let error = store.put("a", Bytes::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    std::fs::create_dir(directory.path()).unwrap();
    store.put("a", Bytes::new()).unwrap();
}

#[test]
fn files_are_not_for_everybody() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let store = on_disk(directory.path());
    store.put("a/b", Bytes::new()).unwrap();
    for name in ["a", "a/b", UPLOADS] {
        let info = std::fs::metadata(directory.path().join(name)).unwrap();
        assert_eq!(info.permissions().mode() & 0o007, 0, "{name}");
    }
}

/// Of eight racers one wins, and all see its bytes.
#[test]
fn a_create_has_one_winner_of_eight() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..100 {
        let name = format!("log/1/{round}");
        let start = Barrier::new(8);
        let told: Vec<(PutNew, Bytes)> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|racer| {
                    let (start, name) = (&start, &name);
                    // Each has a store of its own, as servers do.
                    let store = on_disk(directory.path());
                    scope.spawn(move || {
                        start.wait();
                        let told = store
                            .put_new(name, format!("racer {racer}").into())
                            .unwrap();
                        (told, store.get(name).unwrap())
                    })
                })
                .collect();
            racers
                .into_iter()
                .map(|racer| racer.join().unwrap())
                .collect()
        });
        let winners: Vec<usize> = (0..8).filter(|&i| told[i].0 == PutNew::Created).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        let bytes = format!("racer {}", winners[0]);
        assert!(told.iter().all(|(_, seen)| *seen == bytes), "round {round}");
    }
}

#[test]
fn parts_make_an_object_and_bad_ones_do_not() {
    let (files, store) = in_memory(1);
    let id = store.begin_upload("a/b").unwrap();
    let part = |byte: u8| Bytes::from(vec![byte; 5000]);
    let tags = [
        store.put_part("a/b", &id, 0, part(1)).unwrap(),
        store.put_part("a/b", &id, 1, part(2)).unwrap(),
    ];
    // The second part arrives twice.
    store.put_part("a/b", &id, 1, part(2)).unwrap();
    assert_eq!(store.get("a/b").unwrap_err().kind(), ErrorKind::Absent);
    let path = store.upload_path("a/b", &id).join("0");
    assert!(files.damage(&path, 17));
    let damaged = store.complete_upload("a/b", &id, &tags).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Damaged);
    assert_eq!(store.get("a/b").unwrap_err().kind(), ErrorKind::Absent);
    assert_eq!(leftovers(&store)[0].name, "a/b");
    store.put_part("a/b", &id, 0, part(1)).unwrap();
    store.complete_upload("a/b", &id, &tags).unwrap();
    assert_eq!(store.get("a/b").unwrap(), [part(1), part(2)].concat());
    assert_eq!(leftovers(&store), []);
    let gone = store.complete_upload("a/b", &id, &tags).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Absent);
    store.abort_upload("a/b", &id).unwrap();
}

/// The remains of a request in the middle of which the machine dies.
struct Expected {
    name: String,
    before: Option<Bytes>,
    after: Option<Bytes>,
}

fn request(
    store: &DirStore,
    random: &mut SplitMix64,
    model: &BTreeMap<String, Bytes>,
) -> (Expected, Result<()>) {
    let name = format!("{}/{}/x", random.below(3), random.below(4));
    let size = random.below(20_000) as usize;
    let bytes = Bytes::from(vec![random.draw() as u8; size]);
    let before = model.get(&name).cloned();
    let (after, result) = match random.below(4) {
        0 => (Some(bytes.clone()), store.put(&name, bytes)),
        1 => {
            let after = before.clone().unwrap_or_else(|| bytes.clone());
            (Some(after), store.put_new(&name, bytes).map(|_| ()))
        }
        2 => (None, store.delete(&name)),
        _ => {
            let upload = || {
                let id = store.begin_upload(&name)?;
                let half = bytes.len() / 2;
                let tags = [
                    store.put_part(&name, &id, 0, bytes.slice(..half))?,
                    store.put_part(&name, &id, 1, bytes.slice(half..))?,
                ];
                store.complete_upload(&name, &id, &tags)
            };
            (Some(bytes.clone()), upload())
        }
    };
    let expected = Expected {
        name,
        before,
        after,
    };
    (expected, result)
}

/// After a crash at any point the store holds what was acknowledged, and the request that was under
/// way has happened or has not.
#[test]
fn a_crash_at_any_point_leaves_whole_objects() {
    let mut cut = 0;
    for seed in 0..1500 {
        let (files, mut store) = in_memory(seed);
        let mut random = SplitMix64::new(seed);
        let mut model: BTreeMap<String, Bytes> = BTreeMap::new();
        for round in 0..3 {
            files.set_fuse(random.below(60));
            let open = loop {
                let (expected, result) = request(&store, &mut random, &model);
                if result.is_err() {
                    break expected;
                }
                match expected.after {
                    Some(after) => model.insert(expected.name, after),
                    None => model.remove(&expected.name),
                };
            };
            cut += 1;
            if random.per_mille(700) {
                files.crash();
            } else {
                files.kill();
            }
            // Its temporary files have other names than those before.
            store = reopen(&files, (seed + 1) * 10_000 + round);
            let found = contents(&store);
            let this = found.get(&open.name);
            assert!(
                this == open.before.as_ref() || this == open.after.as_ref(),
                "seed {seed}: {}",
                open.name
            );
            match this {
                Some(bytes) => model.insert(open.name.clone(), bytes.clone()),
                None => model.remove(&open.name),
            };
            assert_eq!(found, model, "seed {seed}");
            // A kill keeps changes that were not synced, and a later crash may undo them: whoever
            // had no answer asks again.
            if !model.contains_key(&open.name) {
                store.delete(&open.name).unwrap();
            }
            for (name, bytes) in &model {
                store.put(name, bytes.clone()).unwrap();
            }
            for UploadInfo { name, id, .. } in leftovers(&store) {
                store.abort_upload(&name, &id).unwrap();
            }
            assert_eq!(leftovers(&store), []);
        }
    }
    assert_eq!(cut, 4500);
}
