use super::*;

#[test]
fn names_come_back() {
    for id in [1, 999_999, 1_000_000, u64::MAX] {
        assert_eq!(parse_segment_name(&segment_name(id)), Some(id));
    }
    for other in [
        "1.wal",
        "000001.sst",
        "000001.wal.tmp",
        "+00001.wal",
        ".wal",
    ] {
        assert_eq!(parse_segment_name(other), None, "{other}");
    }
}
