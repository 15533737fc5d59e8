use super::*;
use crate::env::Open;
use crate::mem::{Faults, HookedFiles, MemFiles, MemObjects, QueuedJobs, VirtualClock};
use crate::random::SplitMix64;
use crate::store::ObjectStore;
use crate::uploads::sweep::STRAY_S;
use bytes::Bytes;
use openssl::sha::sha256;
use std::collections::BTreeMap;
use std::path::Path;

const DAY_US: u64 = STRAY_S * 1_000_000;
const MIB: usize = 1 << 20;

struct Bench {
    clock: Arc<VirtualClock>,
    files: Arc<MemFiles>,
    jobs: Arc<QueuedJobs>,
    objects: Arc<MemObjects>,
    store: Retrying,
    uploads: Uploads,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::new(seed));
        let files = Arc::new(MemFiles::new(seed, &["/data"]));
        let jobs = Arc::new(QueuedJobs::default());
        let objects = Arc::new(MemObjects::new(seed, clock.clone()));
        let store = Retrying::new(objects.clone(), clock.clone(), Deadlines::default());
        let uploads = Uploads::new(&store, files.clone(), clock.clone(), jobs.clone());
        Self {
            clock,
            files,
            jobs,
            objects,
            store,
            uploads,
        }
    }

    /// The process dies and starts again.
    fn restart(&mut self) {
        self.jobs.clear();
        let (files, clock, jobs) = (self.files.clone(), self.clock.clone(), self.jobs.clone());
        self.uploads = Uploads::new(&self.store, files, clock, jobs);
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let file = self.files.open(Path::new(path), Open::Create).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    fn enqueue(&self, name: &str, path: &str, bytes: usize) -> Ticket {
        let upload = Upload {
            name: name.to_owned(),
            path: path.into(),
            bytes: bytes as u64,
        };
        self.uploads.enqueue(upload).unwrap()
    }

    fn run(&self) {
        while self.jobs.run_one() {}
    }
}

fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.draw().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn files_are_stored_in_order_with_their_sha256() {
    let bench = Bench::new(1);
    let sizes = [0, 1000, 32 * MIB, 32 * MIB + 1, 50 * MIB];
    for (i, &size) in sizes.iter().enumerate() {
        let path = format!("/data/{i}");
        bench.write(&path, &bytes_of(i as u64, size));
        bench.enqueue(&format!("sst/{i}"), &path, size);
    }
    assert_eq!(bench.uploads.stats().pending, 5);
    bench.run();
    let ended = bench.uploads.take_ended();
    assert_eq!(ended.len(), 5);
    for (i, ended) in ended.into_iter().enumerate() {
        let bytes = bytes_of(i as u64, sizes[i]);
        assert_eq!(ended.name, format!("sst/{i}"));
        let Outcome::Stored { sha256: stored } = ended.outcome else {
            panic!("{ended:?}");
        };
        assert_eq!(stored, sha256(&bytes));
        assert_eq!(bench.objects.contents()[&ended.name], bytes);
    }
    let stats = bench.uploads.stats();
    assert_eq!(
        (stats.pending, stats.pending_bytes, stats.stored),
        (0, 0, 5)
    );
    assert_eq!(bench.objects.uploads(), 0);
    assert!(bench.uploads.take_ended().is_empty());
}

#[test]
fn an_upload_waits_for_the_store_to_come_back() {
    let bench = Bench::new(1);
    bench.write("/data/a", &[7; 100]);
    bench.enqueue("a", "/data/a", 100);
    bench.objects.go_out(3600 * 1_000_000);
    bench.run();
    assert!(matches!(
        bench.uploads.take_ended()[0].outcome,
        Outcome::Stored { .. }
    ));
    assert_eq!(bench.objects.contents()["a"], vec![7; 100]);
    let stats = bench.uploads.stats();
    assert!(stats.retries > 50, "{stats:?}");
    assert!(stats.last_error.is_some());
}

#[test]
fn a_file_that_is_gone_or_has_changed_fails() {
    let bench = Bench::new(1);
    bench.write("/data/short", &[1; 10]);
    bench.enqueue("gone", "/data/gone", 10);
    bench.enqueue("short", "/data/short", 11);
    bench.run();
    let ended = bench.uploads.take_ended();
    let kind = |i: usize| match &ended[i].outcome {
        Outcome::Failed(error) => error.kind(),
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!((kind(0), kind(1)), (ErrorKind::Absent, ErrorKind::Damaged));
    assert!(bench.objects.contents().is_empty());
}

#[test]
fn an_aborted_upload_leaves_nothing() {
    let bench = Bench::new(1);
    bench.write("/data/a", &[1; 10]);
    let ticket = bench.enqueue("a", "/data/a", 10);
    bench.uploads.abort(ticket);
    bench.run();
    assert!(matches!(
        bench.uploads.take_ended()[0].outcome,
        Outcome::Aborted
    ));
    assert!(bench.objects.contents().is_empty());
    // The name is still held: the caller has not released it.
    let again = || Upload {
        name: "a".to_owned(),
        path: "/data/a".into(),
        bytes: 10,
    };
    let refused = bench.uploads.enqueue(again()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    bench.uploads.release("a");
    bench.uploads.enqueue(again()).unwrap();
    bench.uploads.close();
    bench.run();
    assert!(matches!(
        bench.uploads.take_ended()[0].outcome,
        Outcome::Aborted
    ));
}

/// The jobs' threads are ending: nobody would wait for an upload that never ends.
#[test]
fn an_upload_whose_job_is_dropped_is_aborted() {
    let bench = Bench::new(1);
    bench.write("/data/a", &[1; 10]);
    let ticket = bench.enqueue("a", "/data/a", 10);
    bench.jobs.clear();
    let ended = bench.uploads.take_ended();
    assert!(matches!(ended[0].outcome, Outcome::Aborted), "{ended:?}");
    bench.uploads.wait(ticket);
    assert_eq!(bench.uploads.stats().pending, 0);
}

/// An older object has the name and the size, and the parts are gone when they are to be joined.
#[test]
fn an_older_object_is_not_taken_for_the_upload() {
    let bytes = bytes_of(1, 33 * MIB);
    for seed in 0..6 {
        let bench = Bench::new(seed);
        bench.write("/data/a", &bytes);
        bench.store.put("a", bytes_of(2, 33 * MIB).into()).unwrap();
        bench.objects.set_faults(Faults {
            lost_upload: 500,
            ..Faults::default()
        });
        bench.enqueue("a", "/data/a", 33 * MIB);
        bench.run();
        let ended = bench.uploads.take_ended();
        assert!(matches!(ended[0].outcome, Outcome::Stored { .. }));
        assert!(bench.objects.contents()["a"] == bytes, "seed {seed}");
    }
}

#[test]
fn strays_are_swept_when_they_are_old_unnamed_and_not_held() {
    let bench = Bench::new(1);
    for name in ["sst/named", "sst/stray", "other/stray"] {
        bench.store.put(name, vec![1].into()).unwrap();
    }
    bench.write("/data/held", &[1; 10]);
    bench.enqueue("sst/held", "/data/held", 10);
    bench.run();
    let left = bench.store.begin_upload("sst/left").unwrap();
    let is_named = |name: &str| name == "sst/named";
    let nothing = Swept::default();
    assert_eq!(bench.uploads.sweep("sst/", &is_named).unwrap(), nothing);
    bench.clock.sleep_us(DAY_US + 1);
    bench.store.put("sst/young", vec![1].into()).unwrap();
    let swept = bench.uploads.sweep("sst/", &is_named).unwrap();
    assert_eq!(swept.objects, ["sst/stray"]);
    assert_eq!(swept.uploads, 1);
    let part = bench.store.put_part("sst/left", &left, 0, vec![1].into());
    assert_eq!(part.unwrap_err().kind(), ErrorKind::Absent);
    let names: Vec<String> = bench.objects.contents().into_keys().collect();
    assert_eq!(names, ["other/stray", "sst/held", "sst/named", "sst/young"]);
    bench.uploads.release("sst/held");
    let swept = bench.uploads.sweep("sst/", &is_named).unwrap();
    assert_eq!(swept.objects, ["sst/held"]);
    // The deletion may be executed again, late.
    let again = || Upload {
        name: "sst/held".to_owned(),
        path: "/data/held".into(),
        bytes: 10,
    };
    let early = bench.uploads.enqueue(again()).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::Throttled);
    bench.clock.sleep_us(3600 * 1_000_000);
    bench.uploads.enqueue(again()).unwrap();
    assert_eq!(bench.uploads.sweep("sst/", &is_named).unwrap(), nothing);
    assert!(bench.uploads.0.state.lock().swept.is_empty());
}

#[test]
fn an_upload_that_takes_more_than_a_day_is_not_swept() {
    let bench = Bench::new(1);
    let bytes = bytes_of(1, 40 * MIB);
    bench.write("/data/a", &bytes);
    let files = Arc::new(HookedFiles::new(bench.files.clone()));
    let (clock, jobs) = (bench.clock.clone(), bench.jobs.clone());
    let uploads = Uploads::new(&bench.store, files.clone(), clock.clone(), jobs);
    let uploads = Arc::new(uploads);
    let upload = Upload {
        name: "a".to_owned(),
        path: "/data/a".into(),
        bytes: 40 * MIB as u64,
    };
    uploads.enqueue(upload).unwrap();
    // A sweep, before the first part is read.
    let (sweeping, swept) = (uploads.clone(), Arc::new(Mutex::new(None)));
    let result = swept.clone();
    files.before_next_read(move || {
        clock.sleep_us(DAY_US + 1);
        *result.lock() = Some(sweeping.sweep("", &|_| false).unwrap());
    });
    bench.run();
    assert_eq!(*swept.lock(), Some(Swept::default()));
    assert_eq!(uploads.stats().retries, 0);
    assert!(bench.objects.contents()["a"] == bytes);
}

/// A stray of the same name is old, and an upload of it begins during the sweep.
#[test]
fn an_upload_that_begins_during_a_sweep_is_not_swept() {
    let bench = Bench::new(1);
    bench.store.put("sst/a", vec![1].into()).unwrap();
    bench.clock.sleep_us(DAY_US + 1);
    bench.write("/data/a", &[2; 10]);
    let asked = Mutex::new(0);
    let is_named = |_: &str| {
        // The first question comes from the list, before the name is guarded.
        *asked.lock() += 1;
        if *asked.lock() == 1 {
            bench.enqueue("sst/a", "/data/a", 10);
            bench.run();
        }
        false
    };
    assert_eq!(
        bench.uploads.sweep("", &is_named).unwrap(),
        Swept::default()
    );
    assert_eq!(bench.objects.contents()["sst/a"], vec![2; 10]);
}

/// As before, and the name is released during the sweep: the object is young then, or named.
#[test]
fn an_upload_that_ends_during_a_sweep_is_not_swept() {
    let bench = Bench::new(1);
    bench.store.put("sst/a", vec![1].into()).unwrap();
    bench.clock.sleep_us(DAY_US + 1);
    bench.write("/data/a", &[2; 10]);
    let asked = Mutex::new(0);
    let is_named = |_: &str| {
        *asked.lock() += 1;
        if *asked.lock() == 1 {
            bench.enqueue("sst/a", "/data/a", 10);
            bench.run();
            bench.uploads.release("sst/a");
        }
        false
    };
    assert_eq!(
        bench.uploads.sweep("", &is_named).unwrap(),
        Swept::default()
    );
    assert_eq!(bench.objects.contents()["sst/a"], vec![2; 10]);
}

#[test]
fn an_upload_waits_for_the_sweep_of_its_name() {
    let bench = Bench::new(1);
    let guard = bench.uploads.0.guard("sst/a").unwrap();
    bench.write("/data/a", &[2; 10]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| bench.enqueue("sst/a", "/data/a", 10));
        assert_eq!(bench.uploads.stats().pending, 0);
        drop(guard);
        waits.join().unwrap();
    });
    assert_eq!(bench.uploads.stats().pending, 1);
    assert!(bench.uploads.0.guard("sst/a").is_none());
}

/// A database that uploads, names, deletes and dies, under all faults. What it names is whole; what
/// it does not name is gone after a sweep.
#[test]
fn nothing_is_lost_and_nothing_stays() {
    for seed in 0..crate::mem::seeds(15) {
        let mut bench = Bench::new(seed);
        bench.objects.set_faults(Faults {
            flip_read: 0,
            timeout_us: 1_000_000,
            ..Faults::all(80)
        });
        let mut random = SplitMix64::new(seed);
        let mut named: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut pending: BTreeMap<Ticket, Vec<u8>> = BTreeMap::new();
        let mut number = 0;
        for _ in 0..60 {
            match random.below(12) {
                0..5 => {
                    number += 1;
                    let is_large = random.per_mille(60);
                    let len = if is_large {
                        33 * MIB
                    } else {
                        random.below(3000) as usize
                    };
                    let bytes = bytes_of(number, len);
                    let path = format!("/data/{number}");
                    bench.write(&path, &bytes);
                    let ticket = bench.enqueue(&format!("sst/{number}"), &path, len);
                    pending.insert(ticket, bytes);
                }
                5..9 => {
                    bench.jobs.run_one();
                }
                9 => {
                    if let Some(ticket) = pending.keys().next() {
                        bench.uploads.abort(*ticket);
                    }
                }
                10 => {
                    if let Some((name, _)) = named.pop_first() {
                        // The deletion's answer may get lost for good: a sweep does it.
                        let _ = bench.store.delete(&name);
                    }
                }
                _ => {
                    bench.restart();
                    pending.clear();
                }
            }
            for ended in bench.uploads.take_ended() {
                let bytes = pending.remove(&ended.ticket).unwrap();
                if let Outcome::Stored { sha256: stored } = ended.outcome {
                    assert_eq!(stored, sha256(&bytes));
                    named.insert(ended.name.clone(), bytes);
                }
                bench.uploads.release(&ended.name);
            }
            if random.per_mille(100) {
                bench.clock.sleep_us(random.below(DAY_US));
                let _ = bench.uploads.sweep("", &|name| named.contains_key(name));
            }
            let contents = bench.objects.contents();
            for (name, bytes) in &named {
                let stored = contents.get(name).map(Bytes::len);
                assert_eq!(stored, Some(bytes.len()), "seed {seed}: {name}");
            }
        }
        bench.restart();
        bench.objects.set_faults(Faults::default());
        // Effects that come late have come, and are old.
        for _ in 0..2 {
            bench.clock.sleep_us(DAY_US + 400 * 1_000_000);
            bench
                .uploads
                .sweep("", &|name| named.contains_key(name))
                .unwrap();
        }
        let contents: BTreeMap<String, Vec<u8>> = bench
            .objects
            .contents()
            .into_iter()
            .map(|(name, bytes)| (name, bytes.to_vec()))
            .collect();
        assert!(contents == named, "seed {seed}");
        assert_eq!(bench.objects.uploads(), 0, "seed {seed}");
    }
}
