//! The insert protocol under loom, which tries all interleavings of a few threads:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
//!     cargo test -p firn --lib --release memtable::skiplist::tests
//! ```

use super::super::*;
use loom::sync::Arc;
use loom::thread;

fn insert<'a>(list: &'a Skiplist, splice: &mut Splice<'a>, key: u8, height: usize) -> bool {
    let key = [key];
    let key = InternalKey::new(&key, 1, Kind::Put);
    let inserted = list.insert_with_height(splice, height, key, Value::EMPTY);
    inserted.is_some()
}

/// Checks that every level is sorted and complete, and that the backward walk visits all nodes.
fn check(list: &Skiplist, expected: &[u8]) {
    let forth = |level: usize| std::iter::successors(list.head.next(level), move |n| n.next(level));
    let bottom: Vec<u8> = forth(0).map(|node| node.user_key()[0]).collect();
    assert_eq!(bottom, expected);
    for level in 1..HEIGHT_MAX {
        let tall = forth(0).filter(|node| node.height() > level);
        assert!(tall.eq(forth(level)), "level {level}");
    }
    let back = std::iter::successors(list.last(), SkiplistIter::prev);
    let mut back: Vec<u8> = back.map(|at| at.key().user_key[0]).collect();
    back.reverse();
    assert_eq!(back, expected);
}

/// Two writers link neighbouring nodes, each with two links, between the same two nodes.
#[test]
fn two_writers_between_the_same_nodes() {
    loom::model(|| {
        let list = Arc::new(Skiplist::new());
        insert(&list, &mut list.splice(), 9, 2);
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || assert!(insert(&list, &mut list.splice(), 3, 2)))
        };
        assert!(insert(&list, &mut list.splice(), 5, 2));
        other.join().unwrap();
        check(&list, &[3, 5, 9]);
    });
}

/// A writer continues with its splice while another writer links a tall node inside it.
#[test]
fn a_splice_that_another_writer_enters() {
    loom::model(|| {
        let list = Arc::new(Skiplist::new());
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || assert!(insert(&list, &mut list.splice(), 4, 2)))
        };
        let mut splice = list.splice();
        assert!(insert(&list, &mut splice, 2, 2));
        assert!(insert(&list, &mut splice, 6, 2));
        other.join().unwrap();
        check(&list, &[2, 4, 6]);
    });
}

/// Of two writers of the same entry, exactly one links it.
#[test]
fn two_writers_of_one_entry() {
    loom::model(|| {
        let list = Arc::new(Skiplist::new());
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || insert(&list, &mut list.splice(), 4, 1))
        };
        let mine = insert(&list, &mut list.splice(), 4, 1);
        assert!(mine != other.join().unwrap());
        check(&list, &[4]);
    });
}

/// A reader moves both ways through a growing list: each node it meets is complete and in order,
/// and it misses none of the earlier nodes.
#[test]
fn a_reader_of_a_growing_list() {
    loom::model(|| {
        let list = Arc::new(Skiplist::new());
        insert(&list, &mut list.splice(), 5, 2);
        let writer = {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let mut splice = list.splice();
                insert(&list, &mut splice, 3, 2);
                insert(&list, &mut splice, 4, 1);
            })
        };
        let five = list.at_or_after(&[4, 0], 1).expect("was there before");
        assert_eq!(five.key().user_key, [5]);
        let back = std::iter::successors(Some(five), SkiplistIter::prev);
        let back: Vec<u8> = back.map(|at| at.key().user_key[0]).collect();
        assert!(back.is_sorted_by(|a, b| a > b), "{back:?}");
        let forth = std::iter::successors(list.first(), SkiplistIter::next);
        let forth: Vec<u8> = forth.map(|at| at.key().user_key[0]).collect();
        assert!(forth.is_sorted() && forth.last() == Some(&5), "{forth:?}");
        assert!(forth.len() >= back.len(), "{forth:?} after {back:?}");
        writer.join().unwrap();
        check(&list, &[3, 4, 5]);
    });
}

/// Two writers link versions of one key in front of an older one, and a third version comes late,
/// while a reader passes the versions in one step: it meets a complete node of that key or the next
/// key, never a key in front.
#[test]
fn a_reader_passes_versions_that_are_being_linked() {
    loom::model(|| {
        let list = Arc::new(Skiplist::new());
        let version = |list: &Skiplist, seqno| {
            let key = InternalKey::new(&[4], seqno, Kind::Put);
            list.insert_with_height(&mut list.splice(), 1, key, Value::EMPTY)
                .expect("a version of its own");
        };
        insert(&list, &mut list.splice(), 3, 1);
        insert(&list, &mut list.splice(), 5, 1);
        version(&list, 2);
        let writers = [3, 4].map(|newer| {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                version(&list, newer);
                if newer == 4 {
                    version(&list, 1);
                }
            })
        });
        let newest = list.at_or_after(&[4], 9).expect("was there before");
        let seqno = newest.key().seqno;
        let passed = newest.next_past_versions().expect("5 was there before");
        let key = passed.key();
        let late = key.user_key == [4] && key.seqno == 1;
        assert!(key.user_key == [5] || late, "from {seqno} to {key:?}");
        for writer in writers {
            writer.join().unwrap();
        }
        check(&list, &[3, 4, 4, 4, 4, 5]);
    });
}
