use super::*;
use crate::random::SplitMix64;

/// One get in `one_in` is for block 7, the others are spread over a million.
fn gets(hot: &HotBlocks, random: &mut SplitMix64, count: u64, one_in: u64, nodes: usize) {
    for _ in 0..count {
        let short = match random.below(one_in) {
            0 => 7,
            _ => 1000 + random.below(1_000_000),
        };
        hot.note(short, nodes);
    }
}

#[test]
fn a_block_is_hot_from_its_share_of_the_gets_on() {
    for (one_in, nodes, heat) in [(20, 4, Heat::Hot), (60, 4, Heat::Cold), (10, 2, Heat::Hot)] {
        let hot = HotBlocks::new();
        gets(&hot, &mut SplitMix64::new(one_in), 200_000, one_in, nodes);
        assert_eq!(hot.heat(7), heat, "1/{one_in} of the gets, {nodes} nodes");
        assert_eq!(hot.heat(1001), Heat::Cold);
    }
}

#[test]
fn one_node_has_no_second() {
    let hot = HotBlocks::new();
    gets(&hot, &mut SplitMix64::new(1), 100_000, 1, 1);
    assert_eq!(hot.heat(7), Heat::Cold);
}

#[test]
fn a_block_that_is_no_longer_asked_for_cools_down() {
    let (hot, mut random) = (HotBlocks::new(), SplitMix64::new(1));
    gets(&hot, &mut random, 100_000, 3, 2);
    for heat in [Heat::Ordered, Heat::Copied, Heat::Hot, Heat::Ordered] {
        hot.set_heat(7, heat);
        hot.set_heat(8, heat);
        assert_eq!((hot.heat(7), hot.heat(8)), (heat, Heat::Cold));
    }
    hot.forget_orders();
    assert_eq!((hot.heat(7), hot.copied()), (Heat::Hot, 0));
    hot.set_heat(7, Heat::Copied);
    assert_eq!(hot.copied(), 1);
    gets(&hot, &mut random, 600_000, u64::MAX, 2);
    assert_eq!((hot.heat(7), hot.copied()), (Heat::Cold, 0));
}
