use super::*;

fn range(from: u64, to: u64) -> KeyRange {
    KeyRange {
        smallest: from.to_be_bytes().to_vec(),
        largest: to.to_be_bytes().to_vec(),
    }
}

#[test]
fn a_range_is_open_until_closed_and_again_when_the_oldest_read_has_moved() {
    let reports = TombstoneReports::default();
    assert!(reports.report(range(10, 20)));
    assert!(!reports.report(range(12, 18)), "known");
    assert!(reports.report(range(15, 30)), "more than known");
    assert_eq!(reports.open(5), [range(10, 30)]);
    reports.close(&[range(10, 30)], 5);
    assert!(reports.open(5).is_empty());
    // The read at 5 is still open, so another job would change nothing.
    reports.report(range(10, 20));
    assert!(reports.open(5).is_empty());
    reports.report(range(10, 20));
    assert_eq!(reports.open(6), [range(10, 20)]);
}

#[test]
fn ranges_are_bounded_in_number() {
    let reports = TombstoneReports::default();
    (0..100).for_each(|n| {
        reports.report(range(n * 10, n * 10 + 5));
    });
    let open = reports.open(0);
    assert_eq!(open.len(), RANGES_MAX);
    assert_eq!(open[RANGES_MAX - 1], range(990, 995), "the newest are kept");
}
