use super::*;
use crate::random::SplitMix64;

#[test]
fn the_second_load_within_the_window_counts() {
    let touches = FirstTouches::new(1000);
    for start in [0, 1_000, 65_500, 1_000_000] {
        let short = crate::random::mixed(start + 1);
        assert!(!touches.is_second(short, start));
        assert!(touches.is_second(short, start + WINDOW_S));
        assert!(
            !touches.is_second(short, start + WINDOW_S + 1),
            "counting begins anew"
        );
        assert!(
            !touches.is_second(short, start + 2 * WINDOW_S + 2),
            "too late"
        );
        assert!(
            touches.is_second(short, start + 2 * WINDOW_S + 2),
            "but that is a first one"
        );
    }
}

#[test]
fn a_full_sketch_forgets_the_oldest() {
    let touches = FirstTouches::new(4096);
    let mut random = SplitMix64::new(1);
    let old: Vec<u64> = (0..4000).map(|_| random.draw()).collect();
    assert!(
        old.iter()
            .filter(|short| touches.is_second(**short, 1))
            .count()
            < 5
    );
    let new: Vec<u64> = (0..1000).map(|_| random.draw()).collect();
    assert!(
        new.iter()
            .filter(|short| touches.is_second(**short, 2))
            .count()
            < 5
    );
    let found = new
        .iter()
        .filter(|short| touches.is_second(**short, 3))
        .count();
    assert!(found > 950, "{found}");
}
