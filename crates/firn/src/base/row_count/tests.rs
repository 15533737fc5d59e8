use super::*;

#[test]
fn commits_count_from_what_was_known_when_it_was_known() {
    let rows = RowCount::default();
    rows.count(7);
    assert_eq!(rows.rows(), None);
    let counted = rows.counted();
    rows.count(2);
    // The estimate of 100 contains the seven rows that were counted before it, and not the two
    // counted after it.
    rows.set(100, counted);
    assert_eq!(rows.rows(), Some(102));
    rows.count(-3);
    assert_eq!(rows.rows(), Some(99));
    rows.set(50, rows.counted());
    assert_eq!(rows.rows(), Some(50));
    rows.forget();
    assert_eq!(rows.rows(), None);
}

#[test]
fn an_estimate_that_was_too_low_never_gives_less_than_no_rows() {
    let rows = RowCount::default();
    rows.set(3, 0);
    rows.count(-10);
    assert_eq!(rows.rows(), Some(0));
    rows.set(u64::MAX, rows.counted());
    assert!(rows.rows().is_some_and(|rows| rows > 1 << 60));
}
