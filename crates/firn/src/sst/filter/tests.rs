use super::*;
use crate::base::checksum::xxh3;

fn hashes(from: u64, to: u64) -> Vec<u64> {
    (from..to).map(|i| xxh3(&i.to_be_bytes())).collect()
}

#[test]
fn all_keys_are_found_and_few_others() {
    let present = hashes(0, 20_000);
    let filter = Filter::decode(&build(&present, 10)).unwrap();
    assert!(present.iter().all(|&h| filter.may_contain(h)));
    let wrong = hashes(1_000_000, 1_100_000);
    let wrong = wrong.iter().filter(|&&h| filter.may_contain(h)).count();
    assert!(
        wrong < 1_500,
        "{wrong} of 100000 absent keys pass the filter"
    );
}

#[test]
fn a_filter_of_one_key_works() {
    let filter = Filter::decode(&build(&[42], 10)).unwrap();
    assert!(filter.may_contain(42));
}

#[test]
fn odd_sizes_are_refused() {
    for bytes in [&[][..], &[6], &[6; 64], &[0; 65], &[17; 65]] {
        assert!(Filter::decode(bytes).is_err());
    }
}
