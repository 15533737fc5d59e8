use super::*;

fn point(n: u64) -> PrefixEnd {
    PrefixEnd {
        group: n,
        lsn: n * 10,
    }
}

fn under_way(n: u64) -> DurablePrefix {
    let mut progress = DurablePrefix::new(point(0));
    for group in 1..=n {
        progress.begin(point(group), group);
    }
    progress
}

#[test]
fn only_the_contiguous_prefix_counts() {
    let mut progress = under_way(4);
    progress.finish(2, true);
    progress.finish(4, true);
    assert_eq!(
        (progress.durable(), progress.written()),
        (point(0), point(0))
    );
    progress.finish(1, true);
    assert_eq!(
        (progress.durable(), progress.written()),
        (point(2), point(2))
    );
    assert_eq!(progress.writing(), 1);
    progress.finish(3, true);
    assert_eq!(progress.durable(), point(4));
    assert_eq!(progress.oldest_segment(), None);
}

#[test]
fn written_groups_wait_for_a_sync() {
    let mut progress = under_way(5);
    progress.finish(1, false);
    progress.finish(2, false);
    progress.finish(3, true);
    assert_eq!(
        (progress.durable(), progress.written()),
        (point(0), point(3))
    );
    assert!(progress.needs_sync());
    assert_eq!(progress.oldest_segment(), Some(1));
    let target = progress.written();
    progress.finish(4, false);
    progress.finish(5, true);
    progress.synced(target);
    assert_eq!(
        (progress.durable(), progress.written()),
        (point(3), point(5))
    );
    assert!(progress.needs_sync());
    progress.synced(progress.written());
    assert_eq!(progress.durable(), point(5));
    assert!(!progress.needs_sync());
}

/// A group that is written durably behind the target of a running sync joins the durable prefix
/// when the sync ends.
#[test]
fn a_durable_group_behind_a_running_sync_counts_afterwards() {
    let mut progress = under_way(2);
    progress.finish(1, false);
    let target = progress.written();
    progress.finish(2, true);
    progress.synced(target);
    assert_eq!(progress.durable(), point(2));
}

#[test]
fn unsynced_groups_do_not_pile_up() {
    let mut progress = DurablePrefix::new(point(0));
    for group in 1..=1000 {
        progress.begin(point(group), group / 10);
        progress.finish(group, false);
    }
    assert_eq!(progress.entries.len(), 1);
    assert_eq!(progress.oldest_segment(), Some(0));
    let target = progress.written();
    progress.begin(point(1001), 100);
    progress.finish(1001, false);
    progress.synced(target);
    assert_eq!(
        (progress.durable(), progress.written()),
        (point(1000), point(1001))
    );
}
