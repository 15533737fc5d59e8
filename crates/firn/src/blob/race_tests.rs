//! Tests in which the blob gc replaces a file while another thread stands at one critical point.
//! The tests in `interleavings` cover all points.

use super::pause_points::{BlobPausePoint, at};
use super::{BlobSpan, BlobStore, TransactionBlobs};
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::BlobRef;
use crate::env::{Env, MemEnv, ReadClass};
use crate::store::FileStore;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// A blob store with one file, which has zeros behind its last span.
struct World {
    env: MemEnv,
    store: Arc<BlobStore>,
    file: u64,
    values: Vec<(BlobRef, Vec<u8>)>,
}

fn store_in(env: &MemEnv, first_id: u64) -> BlobStore {
    let files = FileStore::new(Arc::new(env.clone()), "/db");
    let next = AtomicU64::new(first_id);
    BlobStore::new(files, 64 << 20, move || {
        next.fetch_add(1, Ordering::Relaxed)
    })
}

impl World {
    fn new() -> Self {
        let env = MemEnv::new();
        env.create_dir_all(Path::new("/db")).unwrap();
        let store = Arc::new(store_in(&env, 1));
        let mut rng = StdRng::seed_from_u64(7);
        let mut values = Vec::new();
        // From the second commit on, the zero fill writes zeros.
        for _ in 0..3 {
            let value: Vec<u8> = (0..8000).map(|_| rng.random()).collect();
            let mut session = TransactionBlobs::new();
            let blob = store.write(&mut session, 0, &value).unwrap();
            session.sync().unwrap();
            values.push((blob, value));
        }
        let file = store.file(values[0].0.file);
        assert!(file.usage().unwrap().len > file.written());
        Self {
            env,
            store,
            file: file.id(),
            values,
        }
    }

    fn spans(&self) -> Vec<BlobSpan> {
        let spans = self.values.iter().map(|(blob, _)| BlobSpan {
            offset: blob.offset,
            len: blob.span(),
        });
        spans.collect()
    }

    /// The blob gc's work on the file: replaces the file unless it grows or is held. Returns
    /// whether it did.
    fn collection(&self) -> impl FnOnce() -> bool + Send + use<> {
        let (store, id, live) = (Arc::clone(&self.store), self.file, self.spans());
        move || {
            let file = store.file(id);
            if file.grows() || file.is_held() {
                return false;
            }
            let rewritten = store.rewrite(&file, &live).unwrap();
            store.install(&rewritten).unwrap();
            true
        }
    }

    /// Runs the blob gc when this thread reaches `place`. The result is `None` until then;
    /// afterwards it says whether the file was replaced.
    fn collect_at(&self, place: BlobPausePoint) -> Rc<Cell<Option<bool>>> {
        let taken = Rc::new(Cell::new(None));
        let (seen, collect) = (Rc::clone(&taken), self.collection());
        at(place, move || seen.set(Some(collect())));
        taken
    }

    fn check(&self) {
        let mut buf = BlobBuf::new();
        for (blob, value) in &self.values {
            assert_eq!(
                self.store.read(blob, ReadClass::Blob, &mut buf).unwrap(),
                value
            );
        }
        let file = self.store.file(self.file);
        for span in self.spans() {
            assert!(file.locate(span.offset).unwrap().is_some());
        }
    }
}

#[test]
fn a_file_is_not_taken_before_it_is_sealed_altogether() {
    let world = World::new();
    let taken = world.collect_at(BlobPausePoint::Sealing);
    world.store.seal_active();
    assert!(taken.get().is_some());
    world.check();
    if taken.get() == Some(false) {
        assert!(world.collection()());
    }
    world.store.trim_sealed();
    world.check();
}

#[test]
fn zeros_that_went_with_their_file_are_not_cut_off_the_next_one() {
    let world = World::new();
    let taken = world.collect_at(BlobPausePoint::Trimming);
    world.store.seal_active();
    assert_eq!(taken.get(), Some(true));
    world.check();
}

#[test]
fn no_file_takes_the_place_of_one_that_is_being_cut() {
    let world = World::new();
    let (arrived, arrives) = mpsc::channel();
    let (ended, ends) = mpsc::channel();
    let collect = world.collection();
    at(BlobPausePoint::Cutting, move || {
        std::thread::spawn(move || {
            at(BlobPausePoint::Installing, move || {
                arrived.send(()).unwrap()
            });
            ended.send(collect()).unwrap();
        });
        // The blob gc's thread waits at this point until the zeros of the file are cut off.
        arrives.recv().unwrap();
    });
    world.store.seal_active();
    assert!(ends.recv().unwrap());
    world.check();
}

#[test]
fn a_reader_that_comes_to_an_old_name_goes_on_to_the_new_one() {
    let world = World::new();
    world.store.seal_active();
    // Rewrite through another store, so that this store has not opened the file yet.
    let other = store_in(&world.env, 50);
    let rewritten = other.rewrite(&other.file(world.file), &world.spans());
    let rewritten = rewritten.unwrap();
    let (logical, physical) = (rewritten.logical, rewritten.physical);
    let store = Arc::clone(&world.store);
    let done = Rc::new(Cell::new(false));
    let seen = Rc::clone(&done);
    at(BlobPausePoint::Opening, move || {
        store.install(&rewritten).unwrap();
        seen.set(true);
    });
    world.check();
    assert!(done.get());
    // If no file with the blobs exists, the reader still reports an error.
    world.store.files().remove_blob(physical).unwrap();
    let fresh = store_in(&world.env, 90);
    fresh.set_moved([(logical, physical)]);
    let error = fresh.file(logical).check().unwrap_err();
    assert!(error.is_corruption(), "{error}");
}
