use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const KEY: &[u8] = b"\0\0\0\x01k";

fn decide_all(
    snapshots: &Snapshots,
    retired: &RetiredIndexes,
    last: bool,
    nothing_below: bool,
    entries: &[(&[u8], Seqno, Kind)],
) -> Vec<DropDecision> {
    let mut rule = DropRule::new(snapshots, retired, last);
    let decide = |(key, seqno, kind): &(&[u8], Seqno, Kind)| {
        let key = InternalKey::new(key, *seqno, *kind);
        rule.decide(key, |_| nothing_below).unwrap()
    };
    entries.iter().map(decide).collect()
}

#[test]
fn the_newest_of_each_stripe_stays() {
    let snapshots = Snapshots::new(30, [20, 10, 99]);
    assert_eq!(snapshots.oldest(), 10);
    let seqnos = [35, 33, 28, 24, 18, 9, 5];
    let entries: Vec<_> = seqnos.iter().map(|&s| (KEY, s, Kind::Put)).collect();
    let kept: Vec<_> = decide_all(&snapshots, &RetiredIndexes::new(), false, false, &entries)
        .iter()
        .zip(seqnos)
        .filter(|(v, s)| **v == DropDecision::Keep(*s))
        .map(|(_, s)| s)
        .collect();
    assert_eq!(kept, [35, 33, 28, 18, 9]);
}

#[test]
fn every_version_within_the_retention_stays() {
    let of = |retention| Snapshots::retaining(30, [20, 10, 28], retention);
    let seqnos = [35, 33, 28, 24, 18, 12, 9, 5];
    let entries: Vec<_> = seqnos.iter().map(|&s| (KEY, s, Kind::Put)).collect();
    let kept = |snapshots: &Snapshots| -> Vec<Seqno> {
        let all = decide_all(snapshots, &RetiredIndexes::new(), false, false, &entries);
        let all = all.iter().zip(seqnos);
        all.filter(|(v, s)| **v == DropDecision::Keep(*s))
            .map(|(_, s)| s)
            .collect()
    };
    assert_eq!(kept(&of(Retention::Nothing)), [35, 33, 28, 18, 9]);
    let since_15 = of(Retention::Since(15));
    assert_eq!(kept(&since_15), [35, 33, 28, 24, 18, 12, 9]);
    assert_eq!(since_15.oldest(), 10);
    let since_7 = of(Retention::Since(7));
    assert_eq!(kept(&since_7), seqnos);
    assert_eq!(since_7.oldest(), 7);
    // Retention from a seqno in the future has no effect.
    assert_eq!(kept(&of(Retention::Since(99))), [35, 33, 28, 18, 9]);
    // Entries of a dropped index are kept while a read may happen at a seqno before the drop, here
    // 16.
    let retired = RetiredIndexes::from([(1, 16)]);
    let of = |snapshots: &Snapshots| decide_all(snapshots, &retired, true, true, &entries)[3];
    assert_eq!(
        of(&Snapshots::new(30, [])),
        DropDecision::Drop(DropReason::Retired)
    );
    let since = |seqno| Snapshots::retaining(30, [], Retention::Since(seqno));
    assert_eq!(of(&since(16)), DropDecision::Drop(DropReason::Retired));
    assert_eq!(of(&since(15)), DropDecision::Keep(24));
}

#[test]
fn a_deletion_goes_only_with_nothing_below_it() {
    let snapshots = Snapshots::new(30, [10]);
    let entries = [(KEY, 9, Kind::Delete), (KEY, 5, Kind::Put)];
    let none = RetiredIndexes::new();
    assert_eq!(
        decide_all(&snapshots, &none, true, true, &entries),
        [
            DropDecision::Drop(DropReason::Tombstone),
            DropDecision::Drop(DropReason::Shadowed)
        ]
    );
    assert_eq!(
        decide_all(&snapshots, &none, false, false, &entries),
        [
            DropDecision::Keep(9),
            DropDecision::Drop(DropReason::Shadowed)
        ]
    );
    // A deletion above the oldest snapshot stays: it hides a version that the snapshot needs.
    let entries = [(KEY, 11, Kind::Delete), (KEY, 5, Kind::Put)];
    assert_eq!(
        decide_all(&snapshots, &none, true, true, &entries),
        [DropDecision::Keep(11), DropDecision::Keep(0)]
    );
}

#[test]
fn numbers_go_only_in_the_last_level_and_where_no_snapshot_needs_them() {
    let snapshots = Snapshots::new(30, [10]);
    let none = RetiredIndexes::new();
    let puts = [(KEY, 12, Kind::Put), (KEY, 10, Kind::PutBlobs)];
    let keep = |last, below| decide_all(&snapshots, &none, last, below, &puts);
    assert_eq!(
        keep(true, true),
        [DropDecision::Keep(12), DropDecision::Keep(0)]
    );
    assert_eq!(
        keep(false, true),
        [DropDecision::Keep(12), DropDecision::Keep(10)]
    );
    assert_eq!(
        keep(true, false),
        [DropDecision::Keep(12), DropDecision::Keep(10)]
    );
}

#[test]
fn a_dropped_index_goes_once_no_read_is_older() {
    let retired = RetiredIndexes::from([(1, 15)]);
    let other: &[u8] = b"\0\0\0\x02k";
    let entries = [(KEY, 12, Kind::Put), (other, 12, Kind::Put)];
    let of = |snapshots| decide_all(&snapshots, &retired, false, false, &entries);
    let gone = [
        DropDecision::Drop(DropReason::Retired),
        DropDecision::Keep(12),
    ];
    assert_eq!(of(Snapshots::new(30, [])), gone);
    assert_eq!(of(Snapshots::new(30, [15])), gone);
    assert_eq!(
        of(Snapshots::new(30, [14])),
        [DropDecision::Keep(12), DropDecision::Keep(12)]
    );
}

#[test]
fn replayed_entries_are_kept_once() {
    let snapshots = Snapshots::new(5, []);
    let entries = [
        (KEY, 9, Kind::Put),
        (KEY, 9, Kind::Put),
        (KEY, 8, Kind::Put),
    ];
    assert_eq!(
        decide_all(&snapshots, &RetiredIndexes::new(), false, false, &entries),
        [
            DropDecision::Keep(9),
            DropDecision::Drop(DropReason::Shadowed),
            DropDecision::Keep(8)
        ]
    );
}

#[test]
fn what_a_bug_let_through_is_refused() {
    let snapshots = Snapshots::new(5, []);
    let none = RetiredIndexes::new();
    let refuse = |entries: &[(&[u8], Seqno, Kind)]| {
        let mut rule = DropRule::new(&snapshots, &none, false);
        let mut decide =
            |e: &(&[u8], Seqno, Kind)| rule.decide(InternalKey::new(e.0, e.1, e.2), |_| false);
        let (last, first) = entries.split_last().unwrap();
        first.iter().for_each(|e| assert!(decide(e).is_ok()));
        decide(last).unwrap_err().kind().clone()
    };
    assert_eq!(refuse(&[(KEY, 1 << 55, Kind::Put)]), ErrorKind::ShutDown);
    assert_eq!(
        refuse(&[(KEY, 1, Kind::RangeDelete)]),
        ErrorKind::Unsupported
    );
    assert_eq!(
        refuse(&[(KEY, 1, Kind::Put), (KEY, 2, Kind::Put)]),
        ErrorKind::ShutDown
    );
    let before: &[u8] = b"\0\0\0\x01a";
    assert_eq!(
        refuse(&[(KEY, 1, Kind::Put), (before, 1, Kind::Put)]),
        ErrorKind::ShutDown
    );
}

/// The result of a read at `at` over versions sorted newest first: the seqno that wrote the value.
fn read(versions: &[(Seqno, Kind, Seqno)], at: Seqno) -> Option<Seqno> {
    let seen = versions.iter().find(|(seqno, ..)| *seqno <= at)?;
    seen.1.is_put().then_some(seen.2)
}

/// Random versions of one key, the newer ones in the inputs and the older ones below. The
/// compaction must not change the result of any live snapshot, any snapshot yet to be taken, or any
/// read in the past that retention allows.
#[test]
fn reads_are_unchanged() {
    for seed in 0..4000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut versions: Vec<(Seqno, Kind, Seqno)> = Vec::new();
        for seqno in (1..60).rev() {
            if rng.random_range(0..4) == 0 {
                let put = rng.random_range(0..3) > 0;
                let kind = if put { Kind::Put } else { Kind::Delete };
                versions.push((seqno, kind, seqno));
            }
        }
        let inputs = rng.random_range(0..=versions.len());
        let (inputs, below) = versions.split_at(inputs);
        let visible = rng.random_range(1..70);
        let live: Vec<Seqno> = (0..rng.random_range(0..5))
            .map(|_| rng.random_range(1..70))
            .collect();
        let (retention, since) = match seed % 3 {
            0 => (Retention::Nothing, visible),
            _ => {
                let since = rng.random_range(0..70);
                (Retention::Since(since), since.min(visible))
            }
        };
        let snapshots = Snapshots::retaining(visible, live.clone(), retention);
        let last = below.is_empty() && rng.random();
        let retired = RetiredIndexes::new();
        let mut rule = DropRule::new(&snapshots, &retired, last);
        let mut after = Vec::new();
        for &(seqno, kind, wrote) in inputs {
            let key = InternalKey::new(KEY, seqno, kind);
            if let DropDecision::Keep(seqno) = rule.decide(key, |_| below.is_empty()).unwrap() {
                after.push((seqno, kind, wrote));
            }
        }
        after.extend_from_slice(below);
        assert!(after.windows(2).all(|p| p[0].0 > p[1].0), "seed {seed}");
        for at in live.into_iter().chain(since..80) {
            assert_eq!(
                read(&after, at),
                read(&versions, at),
                "seed {seed}, read at {at}"
            );
        }
        // At most one version per stripe stays, besides those above the last stripe.
        let stripes = snapshots.bounds.len() + versions.iter().filter(|v| v.0 > since).count();
        assert!(after.len() - below.len() <= stripes, "seed {seed}");
    }
}

#[test]
fn a_block_is_kept_whole_only_if_each_entry_is() {
    let key = |index: u32, n: u64| crate::compaction::testing::user_key(index, n);
    let reads = Snapshots::new(100, [50]);
    let retired = RetiredIndexes::from([(7, 40), (8, 60)]);
    let (first, last) = (key(5, 10), key(5, 20));
    let zeros = BlockInfo {
        separator: &last,
        bytes: 1000,
        entries: 10,
        deletes: 0,
        min_seqno: 0,
        max_seqno: 0,
        zeroed: true,
    };
    let versions = |min_seqno, max_seqno| BlockInfo {
        min_seqno,
        max_seqno,
        ..zeros
    };
    let keeps = |last_level, first: &[u8], block: BlockInfo<'_>, superseded| {
        DropRule::new(&reads, &retired, last_level).keeps_all(first, &block, superseded)
    };
    assert!(keeps(true, &first, zeros, 0));
    assert!(keeps(true, &first, zeros, 3), "zeros hide nothing");
    assert!(
        !keeps(false, &first, versions(60, 70), 3),
        "one may be hidden"
    );
    assert!(keeps(false, &first, versions(20, 70), 0));
    assert!(!keeps(true, &first, versions(20, 70), 0), "20 becomes 0");
    assert!(!keeps(true, &first, versions(50, 70), 0), "50 becomes 0");
    assert!(keeps(true, &first, versions(51, 70), 0));
    let deleting = BlockInfo {
        deletes: 1,
        ..zeros
    };
    assert!(!keeps(true, &first, deleting, 0) && !keeps(false, &first, deleting, 0));
    // Blocks of dropped indexes, and blocks that may hold several indexes.
    let (seventh, eighth) = (key(7, 9), key(8, 9));
    let of = |separator| BlockInfo { separator, ..zeros };
    assert!(!keeps(true, &key(7, 1), of(&seventh), 0));
    assert!(
        keeps(true, &key(8, 1), of(&eighth), 0),
        "a read stands before the drop"
    );
    assert!(!keeps(true, &first, of(&eighth), 0));
    assert!(!keeps(true, &first, of(&[0, 0]), 0));
    // An entry of the first key has passed already: it may hide the block's first entry.
    let mut rule = DropRule::new(&reads, &retired, true);
    let newer = InternalKey::new(&first, 90, Kind::Put);
    assert_eq!(
        rule.decide(newer, |_| true).unwrap(),
        DropDecision::Keep(90)
    );
    assert!(!rule.keeps_all(&first, &zeros, 0));
    let mut rule = DropRule::new(&reads, &retired, true);
    rule.passed(&key(5, 9));
    assert!(rule.keeps_all(&first, &zeros, 0));
    // An older version of a copied block's last key is a bug.
    rule.passed(&last);
    assert!(
        rule.decide(InternalKey::new(&last, 3, Kind::Put), |_| true)
            .is_err()
    );
}
