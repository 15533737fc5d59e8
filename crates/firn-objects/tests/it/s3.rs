//! Buckets of versitygw.

use crate::versitygw::Versitygw;
use bytes::Bytes;
use firn_objects::{
    Bucket, Deadlines, Environment, ErrorKind, FileCache, FileTraits, HealthState, ObjectInfo,
    ObjectStore, Outcome, PutNew, Retrying, S3Store, SplitMix64, StorageUrl, SystemClock,
    SystemFiles, Threads, Upload, UploadInfo, Uploads, for_each_page,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

pub const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "user"),
    ("AWS_SECRET_ACCESS_KEY", "hidden-secret"),
];

pub fn bucket(url: &str) -> Bucket {
    match StorageUrl::parse(url).unwrap() {
        StorageUrl::Bucket(bucket) => bucket,
        StorageUrl::Directory(path) => panic!("{path:?}"),
    }
}

fn open(server: &Versitygw, prefix: &str) -> S3Store {
    S3Store::open(&bucket(&server.url(prefix)), &Environment::of(&KEYS)).unwrap()
}

fn retrying(store: S3Store) -> Retrying {
    let deadlines = Deadlines {
        read_us: 20_000_000,
        write_us: 20_000_000,
    };
    Retrying::new(Arc::new(store), Arc::new(SystemClock::new()), deadlines)
}

fn bytes_of(seed: u64, len: usize) -> Bytes {
    let mut random = SplitMix64::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.draw().to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

fn names(store: &dyn ObjectStore, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    let page = |token: Option<&str>| store.list_page(prefix, token);
    for_each_page(page, |object: ObjectInfo| names.push(object.name)).unwrap();
    names
}

#[test]
fn objects_come_and_go() {
    let Some(server) = Versitygw::start() else {
        return;
    };
    let store = open(&server, "db-1");
    let bytes = bytes_of(1, 3_000_000);
    store.put("sst/ab/1", bytes.clone()).unwrap();
    assert_eq!(store.get("sst/ab/1").unwrap(), bytes);
    assert_eq!(
        store.get_range("sst/ab/1", 1000..70_000).unwrap(),
        bytes.slice(1000..70_000)
    );
    let ranges: Vec<_> = (0..20).map(|i| i * 100_000..i * 100_000 + 5000).collect();
    let got = store.get_ranges("sst/ab/1", &ranges).unwrap();
    for (range, got) in ranges.iter().zip(got) {
        assert_eq!(got, bytes.slice(range.start as usize..range.end as usize));
    }
    assert_eq!(store.head("sst/ab/1").unwrap().bytes, 3_000_000);
    for range in [2_999_999..3_000_001, 4_000_000..4_000_001] {
        let error = store.get_range("sst/ab/1", range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }
    store.put("sst/ab/1", Bytes::from_static(b"new")).unwrap();
    assert_eq!(store.get("sst/ab/1").unwrap(), "new");
    assert_eq!(
        store.put_new("sst/ab/1", Bytes::new()).unwrap(),
        PutNew::Exists
    );
    assert_eq!(
        store.put_new("sst/ab/2", Bytes::new()).unwrap(),
        PutNew::Created
    );
    assert_eq!(names(&store, ""), ["sst/ab/1", "sst/ab/2"]);
    store.delete("sst/ab/1").unwrap();
    store.delete("sst/ab/1").unwrap();
    assert_eq!(store.get("sst/ab/1").unwrap_err().kind(), ErrorKind::Absent);
    assert_eq!(
        store.head("sst/ab/1").unwrap_err().kind(),
        ErrorKind::Absent
    );
    // Another prefix is another store.
    assert_eq!(names(&open(&server, "db-2"), ""), Vec::<String>::new());
    assert_eq!(names(&open(&server, "db"), ""), Vec::<String>::new());
}

#[test]
fn lists_have_several_pages() {
    let Some(server) = Versitygw::start() else {
        return;
    };
    let store = open(&server, "p");
    let expected: Vec<String> = (0..1100).map(|i| format!("sst/{:02}/{i}", i % 7)).collect();
    for name in &expected {
        store.put(name, Bytes::from_static(b"x")).unwrap();
    }
    let mut sorted = expected.clone();
    sorted.sort();
    assert_eq!(names(&store, ""), sorted);
    sorted.retain(|name| name.starts_with("sst/03/1"));
    assert_eq!(names(&store, "sst/03/1"), sorted);
}

#[test]
fn a_create_has_one_winner_of_eight() {
    let Some(server) = Versitygw::start() else {
        return;
    };
    let store = open(&server, "p");
    for round in 0..100 {
        let name = format!("log/1/{round}");
        let start = Barrier::new(8);
        let told: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|racer| {
                    let (store, start, name) = (&store, &start, &name);
                    scope.spawn(move || {
                        start.wait();
                        store.put_new(name, format!("racer {racer}").into())
                    })
                })
                .collect();
            racers
                .into_iter()
                .map(|racer| racer.join().unwrap())
                .collect()
        });
        let won = |told: &firn_objects::Result<PutNew>| matches!(told, Ok(PutNew::Created));
        let winners: Vec<usize> = (0..8).filter(|&i| won(&told[i])).collect();
        assert_eq!(winners.len(), 1, "round {round}: {told:?}");
        assert_eq!(store.get(&name).unwrap(), format!("racer {}", winners[0]));
    }
}

#[test]
fn wrong_keys_and_buckets_are_told() {
    let Some(server) = Versitygw::start() else {
        return;
    };
    let keys = [KEYS[0], ("AWS_SECRET_ACCESS_KEY", "another-secret")];
    let store = S3Store::open(&bucket(&server.url("p")), &Environment::of(&keys)).unwrap();
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let url = server.url("p").replace("s3://firn/", "s3://other/");
    let store = S3Store::open(&bucket(&url), &Environment::of(&KEYS)).unwrap();
    let error = store.list_page("", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn uploads_in_parts_end_or_are_swept() {
    let Some(server) = Versitygw::start() else {
        return;
    };
    let store = retrying(open(&server, "p"));
    let directory = tempfile::tempdir().unwrap();
    let jobs = Arc::new(Threads::start("uploads", 2).unwrap());
    let clock = Arc::new(SystemClock::new());
    let uploads = Uploads::new(&store, Arc::new(SystemFiles), clock, jobs);
    let mut expected = BTreeMap::new();
    for (i, len) in [1000, 20 << 20, 40 << 20, 33 << 20].into_iter().enumerate() {
        let bytes = bytes_of(i as u64, len);
        let path = directory.path().join(i.to_string());
        std::fs::write(&path, &bytes).unwrap();
        let upload = Upload {
            name: format!("sst/{i}"),
            path,
            bytes: len as u64,
        };
        expected.insert(uploads.enqueue(upload).unwrap(), bytes);
    }
    for &ticket in expected.keys() {
        uploads.wait(ticket);
    }
    let ended = uploads.take_ended();
    assert_eq!(ended.len(), 4);
    for ended in ended {
        assert!(matches!(ended.outcome, Outcome::Stored { .. }), "{ended:?}");
        assert!(store.get(&ended.name).unwrap() == expected[&ended.ticket]);
    }
    let id = store.begin_upload("sst/left").unwrap();
    store
        .put_part("sst/left", &id, 0, bytes_of(9, 5 << 20))
        .unwrap();
    let left = store.list_uploads_page("", None).unwrap().items;
    assert_eq!(left.len(), 1);
    let UploadInfo {
        name,
        id: found,
        started_s,
    } = &left[0];
    assert_eq!((name.as_str(), found), ("sst/left", &id));
    assert!(*started_s > 1_700_000_000);
    // It is young.
    let swept = uploads.sweep("", &|name| name != "sst/0").unwrap();
    assert_eq!((swept.objects.len(), swept.uploads), (0, 0));
    store.abort_upload("sst/left", &id).unwrap();
    store.abort_upload("sst/left", &id).unwrap();
    assert!(store.list_uploads_page("", None).unwrap().items.is_empty());
    assert_eq!(store.get("sst/left").unwrap_err().kind(), ErrorKind::Absent);
}

#[test]
fn a_killed_server_is_down_and_comes_back() {
    let Some(mut server) = Versitygw::start() else {
        return;
    };
    let store = retrying(open(&server, "p"));
    store.put("a", Bytes::from_static(b"one")).unwrap();
    server.kill();
    let hasty = store.with_deadlines(Deadlines {
        read_us: 1_000_000,
        write_us: 1_000_000,
    });
    assert_eq!(hasty.get("a").unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(store.health(), HealthState::Down);
    server.restart();
    assert_eq!(store.get("a").unwrap(), "one");
    assert_ne!(store.health(), HealthState::Down);
}

#[test]
fn files_are_read_through_the_cache() {
    let Some(server) = Versitygw::start() else {
        return;
    };
    let store: Arc<dyn ObjectStore> = Arc::new(retrying(open(&server, "p")));
    let bytes = bytes_of(5, 20 << 20);
    store.put("sst/1", bytes.clone()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let jobs = Arc::new(Threads::start("ahead", 4).unwrap());
    let files = Arc::new(SystemFiles);
    let cache = FileCache::open(root.path().to_owned(), 64 << 20, files, store, jobs).unwrap();
    let traits = FileTraits {
        bytes: bytes.len() as u64,
        tail_bytes: 100_000,
        is_hot: false,
    };
    let file = cache.file("sst/1", traits).unwrap();
    let mut scan = file.scan();
    let mut at = 0;
    while at < file.bytes() {
        let end = file.bytes().min(at + 60_000);
        let expected = &bytes[at as usize..end as usize];
        let got = scan.read(at..end, &|got| got == expected).unwrap();
        assert!(got.bytes == expected);
        at = end;
    }
    assert_eq!(cache.stats().damaged, 0);
    let requests = cache.stats().requests;
    file.read(0..file.bytes(), &|got| got == bytes).unwrap();
    assert_eq!(cache.stats().requests, requests);
}
