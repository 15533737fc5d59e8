use super::*;
use crate::compaction::testing::version_of;

fn bases(last: u64, upper: Option<u8>) -> Shape {
    let mut files = vec![(6, 0, 1u64, 1, 5, last)];
    files.extend(upper.map(|level| (level, 0, 2, 1, 5, 1)));
    Shape::of(&version_of(&files), 100)
}

#[test]
fn the_base_follows_the_size() {
    assert_eq!(Shape::of(&Version::default(), 100).base, 6);
    for (last, base) in [(300, 6), (400, 5), (3000, 5), (4000, 4), (1 << 40, 1)] {
        assert_eq!(bases(last, None).base, base, "last level of {last}");
    }
}

#[test]
fn the_base_is_never_below_data() {
    assert_eq!(bases(300, Some(3)).base, 3);
    assert_eq!(bases(4000, Some(5)).base, 4);
}

#[test]
fn each_target_is_a_tenth_of_the_next() {
    let shape = bases(1_000_000, None);
    assert_eq!(shape.base, 2);
    assert_eq!(shape.targets, [0, 0, 90, 900, 9_000, 90_000, 900_000]);
    assert!((shape.fill(5, 45_000) - 0.5).abs() < 1e-9);
}
