use super::*;
use crate::base::CounterValue;
use crate::sst::SstBlockCache;
use crate::store::FileStore;
use crate::version::testing::file;

fn source() -> Arc<FileSource> {
    let env = Arc::new(crate::env::PosixEnv::new());
    let store = FileStore::new(env, "/nonexistent");
    FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20)))
}

fn version(edit: &Edit) -> Version {
    let mut state = ManifestState::default();
    assert_eq!(state.check_edit(edit), None);
    state.apply(edit);
    Version::of_state(&state, &source())
}

fn ids(files: FileSpan<'_>) -> Vec<u64> {
    files.iter().map(|f| f.file_id).collect()
}

fn sample() -> Edit {
    Edit {
        added: vec![
            (0, 7, file(1, b"a", b"k")),
            (0, 9, file(2, b"c", b"d")),
            (0, 9, file(3, b"a", b"b")),
            (6, 0, file(4, b"f", b"h")),
            (6, 0, file(5, b"a", b"e")),
        ],
        ..Edit::default()
    }
}

#[test]
fn runs_are_found_newest_first_and_sorted() {
    let v = version(&sample());
    assert_eq!(v.check_all(), None);
    let order: Vec<_> = v.files().map(|(level, f)| (level, f.file_id)).collect();
    assert_eq!(order, [(0, 3), (0, 2), (0, 1), (6, 5), (6, 4)]);
    let found: Vec<_> = v
        .overlapping(b"d", Bound::Included(b"f"))
        .map(ids)
        .collect();
    assert_eq!(found, [vec![2], vec![1], vec![5, 4]]);
    let found: Vec<_> = v
        .overlapping(b"e", Bound::Excluded(b"f"))
        .map(ids)
        .collect();
    assert_eq!(found, [vec![1], vec![5]]);
    let found: Vec<_> = v.overlapping(b"i", Bound::Unbounded).map(ids).collect();
    assert_eq!(found, [vec![1]]);
    let last = &v.levels[LAST_LEVEL - 1];
    assert_eq!(last.find(b"e").map(|f| f.file_id), Some(5));
    assert!(last.find(b"ee").is_none() && last.find(b"i").is_none());
    assert_eq!(last.find(b"f").map(|f| f.file_id), Some(4));
    assert_eq!((v.level_size(0), v.size()), (3000, 5000));
    assert_eq!(v.index_stats(1).entries, 50);
    assert_eq!(v.index_stats(2).entries, 0);
}

#[test]
fn an_edit_shares_what_it_does_not_touch() {
    let v = version(&sample());
    let edit = Edit {
        removed: vec![(0, 2), (0, 3)],
        added: vec![(5, 0, file(2, b"c", b"d"))],
        ..Edit::default()
    };
    let next = v.with(&edit, &source()).unwrap();
    assert_eq!(next.check_all(), None);
    assert_eq!(next.l0.iter().map(|r| r.number).collect::<Vec<_>>(), [7]);
    assert!(Arc::ptr_eq(&next.levels[5], &v.levels[5]));
    assert!(!Arc::ptr_eq(&next.levels[4], &v.levels[4]));
    let moved = next.levels[4].find(b"c").unwrap();
    assert!(Arc::ptr_eq(moved, v.l0[0].find(b"c").unwrap()));
}

#[test]
fn impossible_trees_are_named() {
    let broken = |change: fn(&mut Edit), word: &str| {
        let mut edit = sample();
        change(&mut edit);
        let what = version(&edit).check_all().expect(word);
        assert!(what.contains(word), "{what}");
    };
    broken(
        |e| e.added[3].2.smallest = b"e".to_vec(),
        "share a user key",
    );
    broken(
        |e| e.added[1].2.smallest = b"b".to_vec(),
        "share a user key",
    );
    broken(|e| e.added[0].2.max_seqno = 1 << 55, "uncommitted");
    broken(|e| e.added[0].2.min_seqno = 10, "smallest seqno");
    broken(|e| e.added[0].2.smallest = b"z".to_vec(), "smallest key");
    broken(|e| e.added[0].2.deletes = 11, "counts");
    broken(|e| e.added[0].2.size = u64::MAX, "impossible");
    broken(|e| e.added[0].2.tail_len = 1001, "tail");
    broken(|e| e.added[0].2.per_index[0].entries = u64::MAX, "add up");
}

#[test]
fn objections_to_edits() {
    let mut state = ManifestState::default();
    state.apply(&sample());
    let refused = |edit: Edit| assert!(state.check_edit(&edit).is_some(), "{edit:?}");
    let added = |added| Edit {
        added: vec![added],
        ..Edit::default()
    };
    refused(added((0, 11, file(1, b"a", b"b"))));
    refused(added((7, 0, file(9, b"a", b"b"))));
    refused(added((0, 0, file(9, b"a", b"b"))));
    refused(added((3, 4, file(9, b"a", b"b"))));
    let removed = |removed| Edit {
        removed,
        ..Edit::default()
    };
    refused(removed(vec![(1, 1)]));
    refused(removed(vec![(0, 99)]));
    refused(removed(vec![(0, 1), (0, 1)]));
    let mut changed = added((6, 0, file(1, b"x", b"y")));
    changed.removed = vec![(0, 1)];
    refused(changed);
}

#[test]
fn maxima_never_go_back() {
    let mut state = ManifestState::default();
    state.apply(&Edit {
        log_number: Some(5),
        last_seqno: Some(50),
        counters: vec![(1, 10.into()), (2, 20.into())],
        time_pairs: vec![(50, 1000)],
        ..Edit::default()
    });
    state.apply(&Edit {
        log_number: Some(4),
        last_seqno: Some(40),
        counters: vec![(1, 9.into()), (2, 21.into())],
        time_pairs: vec![(40, 900), (60, 1100)],
        ..Edit::default()
    });
    assert_eq!((state.log_number, state.last_seqno), (5, 50));
    assert_eq!(
        state.counters,
        BTreeMap::from([(1, 10.into()), (2, 21.into())])
    );
    assert_eq!(state.time_pairs, [(50, 1000), (60, 1100)]);
    // Setting a counter begins a new generation. Its value replaces all values of earlier
    // generations, in whatever order the edits are applied.
    let set = |generation, value| (1, CounterValue { generation, value });
    for counters in [vec![set(1, 3), set(1, 2)], vec![(1, 99.into())]] {
        state.apply(&Edit {
            counters,
            ..Edit::default()
        });
        assert_eq!(state.counters.first_key_value(), Some((&1, &set(1, 3).1)));
    }
    let mut copy = ManifestState::default();
    copy.apply(&state.snapshot());
    assert_eq!(copy, state);
}
