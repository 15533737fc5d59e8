use super::*;

fn range(from: u64, to: u64) -> KeyRange {
    KeyRange {
        smallest: from.to_be_bytes().to_vec(),
        largest: to.to_be_bytes().to_vec(),
    }
}

#[test]
fn a_range_is_open_until_closed_and_again_when_the_oldest_read_has_moved() {
    let tombstone_reports = TombstoneReports::default();
    assert!(tombstone_reports.report(range(10, 20)));
    assert!(!tombstone_reports.report(range(12, 18)), "known");
    assert!(tombstone_reports.report(range(15, 30)), "more than known");
    assert_eq!(tombstone_reports.open(5), [range(10, 30)]);
    tombstone_reports.close(&[range(10, 30)], 5);
    assert!(tombstone_reports.open(5).is_empty());
    // The read at 5 is still open, so another job would change nothing.
    tombstone_reports.report(range(10, 20));
    assert!(tombstone_reports.open(5).is_empty());
    tombstone_reports.report(range(10, 20));
    assert_eq!(tombstone_reports.open(6), [range(10, 20)]);
}

#[test]
fn ranges_are_bounded_in_number() {
    let tombstone_reports = TombstoneReports::default();
    (0..100).for_each(|n| {
        tombstone_reports.report(range(n * 10, n * 10 + 5));
    });
    let open = tombstone_reports.open(0);
    assert_eq!(open.len(), RANGES_MAX);
    assert_eq!(open[RANGES_MAX - 1], range(990, 995), "the newest are kept");
}

#[test]
fn ranges_that_share_a_key_become_one() {
    let tombstone_reports = TombstoneReports::default();
    tombstone_reports.report(range(10, 20));
    tombstone_reports.report(range(30, 40));
    tombstone_reports.report(range(50, 60));
    // This one joins two ranges.
    assert!(tombstone_reports.report(range(15, 35)));
    assert_eq!(tombstone_reports.open(0), [range(50, 60), range(10, 40)]);
    // The reports of one move touch.
    (0..1000).for_each(|n| {
        tombstone_reports.report(range(100 + n, 101 + n));
    });
    let joined = [range(50, 60), range(10, 40), range(100, 1100)];
    assert_eq!(tombstone_reports.open(0), joined);
    assert!(!tombstone_reports.report(range(500, 600)), "known");
}
