//! A model of three threads, which `loom` runs in every interleaving: one thread seals a blob file
//! and cuts off its zeros, the blob gc replaces the file, and a reader reads it.
//!
//! The steps are those of `blob::file` and `blob::store`, in the same order. For each fault in that
//! order, a test checks that the model finds it.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    /// `grows` is cleared before the physical file is stored as one that no longer grows.
    AtRestLate,
    /// The check for zeros is not repeated under the `linking` lock.
    AskedOnce,
    /// The new physical file replaces the old one before the `linking` lock is held.
    Unguarded,
    /// A reader whose file is gone reports an error, without looking for a newer physical file.
    NoSecondLook,
}

/// The two physical files, by number.
const OLD: usize = 0;
const NEW: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    Absent,
    Whole,
    Cut,
}

struct World {
    broken: Broken,
    grows: AtomicBool,
    /// Number of the physical file that holds the blobs.
    physical: AtomicUsize,
    /// The file has zeros behind its last span.
    zeros: AtomicBool,
    linking: Mutex<()>,
    disk: Mutex<[OnDisk; 2]>,
}

impl World {
    fn new(broken: Broken) -> Self {
        Self {
            broken,
            grows: AtomicBool::new(true),
            physical: AtomicUsize::new(OLD),
            zeros: AtomicBool::new(true),
            linking: Mutex::new(()),
            disk: Mutex::new([OnDisk::Whole, OnDisk::Absent]),
        }
    }

    fn seal(&self) {
        if self.broken == Broken::AtRestLate {
            self.grows.store(false, Ordering::Release);
        }
        self.physical.store(OLD, Ordering::Release);
        self.grows.store(false, Ordering::Release);
    }

    fn trim(&self) {
        if !self.zeros.load(Ordering::Relaxed) {
            return;
        }
        let Ok(_alone) = self.linking.try_lock() else {
            return;
        };
        if self.broken != Broken::AskedOnce && !self.zeros.load(Ordering::Relaxed) {
            return;
        }
        let at = self.physical.load(Ordering::Acquire);
        let mut disk = self.disk.lock().unwrap();
        // Cutting the old file removes only zeros; cutting the new one destroys its table of
        // places.
        if at == NEW {
            disk[at] = OnDisk::Cut;
        }
        drop(disk);
        self.zeros.store(false, Ordering::Relaxed);
    }

    /// The blob gc's work. Returns whether it replaced the file.
    fn collect(&self) -> bool {
        if self.grows.load(Ordering::Acquire) {
            return false;
        }
        self.disk.lock().unwrap()[NEW] = OnDisk::Whole;
        let early = self.broken == Broken::Unguarded;
        if early {
            self.replace();
        }
        let _alone = self.linking.lock().unwrap();
        if !early {
            self.replace();
        }
        self.disk.lock().unwrap()[OLD] = OnDisk::Absent;
        true
    }

    fn replace(&self) {
        self.zeros.store(false, Ordering::Relaxed);
        self.physical.swap(NEW, Ordering::AcqRel);
    }

    fn read(&self) {
        let mut at = self.physical.load(Ordering::Acquire);
        loop {
            match self.disk.lock().unwrap()[at] {
                // A reader that has opened the file can read it even after the file is removed.
                OnDisk::Whole => return,
                OnDisk::Cut => panic!("a value was cut off"),
                OnDisk::Absent => {}
            }
            let now = self.physical.load(Ordering::Acquire);
            let gives_up = now == at || self.broken == Broken::NoSecondLook;
            assert!(!gives_up, "the file is missing");
            at = now;
        }
    }
}

fn explore(broken: Broken) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = Arc::new(World::new(broken));
        let collector = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.collect())
        };
        let sealer = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                world.seal();
                world.trim();
            })
        };
        world.read();
        sealer.join().unwrap();
        if !collector.join().unwrap() {
            assert!(world.collect());
        }
        world.trim();
        world.read();
    });
}

#[test]
fn whoever_reads_finds_the_blobs() {
    explore(Broken::Not);
}

#[test]
#[should_panic(expected = "the file is missing")]
fn a_file_put_to_rest_late_takes_the_place_back() {
    explore(Broken::AtRestLate);
}

#[test]
#[should_panic(expected = "a value was cut off")]
fn zeros_asked_for_once_are_cut_off_another_file() {
    explore(Broken::AskedOnce);
}

#[test]
#[should_panic(expected = "a value was cut off")]
fn a_file_that_takes_the_place_unguarded_is_cut() {
    explore(Broken::Unguarded);
}

#[test]
#[should_panic(expected = "the file is missing")]
fn a_reader_without_a_second_look_misses_the_file() {
    explore(Broken::NoSecondLook);
}
