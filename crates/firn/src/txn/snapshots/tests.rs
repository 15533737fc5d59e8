use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn counts_holders_of_a_seqno() {
    let list = SnapshotList::new();
    assert_eq!(list.oldest(), None);
    let a = list.acquire(|| 7);
    let b = list.acquire(|| 3);
    let c = a.clone();
    assert_eq!((a.seqno(), b.seqno(), c.seqno()), (7, 3, 7));
    assert_eq!(list.live(), [3, 7]);
    assert_eq!(list.holders(), 3);
    drop(a);
    assert_eq!(list.live(), [3, 7]);
    drop(b);
    assert_eq!(list.oldest(), Some(7));
    drop(c);
    assert!(list.live().is_empty());
}

/// A list that is read after the visible seqno has risen contains every live snapshot with a
/// smaller seqno.
#[test]
fn a_snapshot_is_never_read_but_not_listed() {
    let list = SnapshotList::new();
    let visible = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let snapshot = list.acquire(|| visible.load(Ordering::SeqCst));
                        assert!(list.live().contains(&snapshot.seqno()));
                    }
                })
            })
            .collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            let before = visible.fetch_add(1, Ordering::SeqCst);
            // From here on, no new snapshot at `before` or below can appear; existing ones can only
            // disappear.
            let live = list.live();
            let later = list.live();
            for old in later.iter().filter(|&&seqno| seqno <= before) {
                assert!(live.contains(old), "snapshot {old} appeared late");
            }
        }
    });
    assert_eq!(list.holders(), 0);
}
