use super::*;
use crate::base::Kind;
use crate::compaction::testing::{Db, VecIter, entry, user_key};
use std::sync::atomic::AtomicBool;

#[test]
fn a_flush_writes_sorted_disjoint_files_of_what_can_be_seen() {
    let db = Db::new();
    let mut entries = Vec::new();
    for n in 0..10_000 {
        entries.push(entry(user_key(1, n), 10 + n, Kind::Put));
        entries.push(entry(user_key(1, n), 90_000 + n, Kind::Delete));
    }
    let expected: Vec<_> = (0..10_000).map(|n| (user_key(1, n), 90_000 + n)).collect();
    let reads = Snapshots::new(200_000, []);
    let mut source = VecIter::new(entries);
    let (files, stats) = flush(
        db.context(),
        &mut source,
        &reads,
        &RetiredIndexes::new(),
        &AtomicBool::new(false),
    )
    .unwrap();
    assert_eq!(
        (stats.entries_in, stats.entries_out, stats.shadowed),
        (20_000, 10_000, 10_000)
    );
    assert_eq!(
        stats.written_bytes,
        files.iter().map(|f| f.size).sum::<u64>()
    );
    assert!(files.len() > 2 && files.iter().all(|f| !f.at_rest && f.superseded == 0));
    assert!(files.windows(2).all(|p| p[0].largest < p[1].smallest));
    db.install_run(files);
    let found: Vec<_> = db.scan().into_iter().map(|(k, s, ..)| (k, s)).collect();
    assert_eq!(found, expected);
}

#[test]
fn versions_kept_for_snapshots_are_counted() {
    let db = Db::new();
    let versions = [5, 15, 25].map(|seqno| entry(user_key(1, 1), seqno, Kind::Put));
    let mut source = VecIter::new(versions.to_vec());
    let reads = Snapshots::new(30, [10, 20]);
    let (files, _) = flush(
        db.context(),
        &mut source,
        &reads,
        &RetiredIndexes::new(),
        &AtomicBool::new(false),
    )
    .unwrap();
    assert_eq!(
        (files.len(), files[0].entries, files[0].superseded),
        (1, 3, 2)
    );
}

#[test]
fn a_flush_of_nothing_visible_writes_no_file() {
    let db = Db::new();
    let mut source = VecIter::new(vec![entry(user_key(4, 1), 5, Kind::Put)]);
    let reads = Snapshots::new(30, []);
    let retired = RetiredIndexes::from([(4, 20)]);
    let (files, stats) = flush(
        db.context(),
        &mut source,
        &reads,
        &retired,
        &AtomicBool::new(false),
    )
    .unwrap();
    assert!(files.is_empty());
    assert_eq!((stats.retired, stats.files_written), (1, 0));
}
