use super::*;

fn key(index: u32, n: u32) -> Vec<u8> {
    [index.to_be_bytes(), n.to_be_bytes()].concat()
}

/// Sizes of the files that a stream of ten-byte entries is split into.
fn files(target: u64, boundaries: &[(u32, u32)], keys: &[Vec<u8>]) -> Vec<u64> {
    let boundaries = boundaries.iter().map(|&(i, n)| key(i, n)).collect();
    cuts(Splitter::new(target, boundaries), keys)
}

fn cuts(mut splitter: Splitter, keys: &[Vec<u8>]) -> Vec<u64> {
    let mut sizes = vec![10];
    for pair in keys.windows(2) {
        if splitter.should_split(&pair[0], &pair[1], *sizes.last().unwrap()) {
            sizes.push(0);
        }
        *sizes.last_mut().unwrap() += 10;
    }
    sizes
}

fn one_index(n: u32) -> Vec<Vec<u8>> {
    (0..n).map(|i| key(1, i)).collect()
}

#[test]
fn without_boundaries_files_have_the_target_size() {
    assert_eq!(files(100, &[], &one_index(35)), [100, 100, 100, 50]);
}

/// No file is much smaller than the others, for any number of bytes, and even if they were foretold
/// a tenth too high or too low.
#[test]
fn the_last_file_is_as_large_as_the_others() {
    for entries in 1..400_u32 {
        for percent in [90, 100, 110] {
            let keys = one_index(entries);
            let mut splitter = Splitter::new(100, Vec::new());
            let mut sizes: Vec<u64> = Vec::new();
            for (at, key) in keys.iter().enumerate() {
                let size = sizes.last().copied();
                if size.is_none_or(|size| splitter.should_split(&keys[at - 1], key, size)) {
                    let remaining = u64::from(entries) - at as u64;
                    splitter.begin_file(remaining * 10 * percent / 100);
                    sizes.push(0);
                }
                *sizes.last_mut().unwrap() += 10;
            }
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            let (least, most) = (*least.unwrap(), *most.unwrap());
            assert!(most <= 180, "{entries}, {percent}: {sizes:?}");
            assert!(
                least >= 60 || sizes.len() == 1,
                "{entries}, {percent}: {sizes:?}"
            );
        }
    }
}

#[test]
fn files_end_at_boundaries_of_the_next_level() {
    // The boundary at 7 causes a cut at 70 of 100; the one at 9 comes too early for the next file.
    assert_eq!(
        files(100, &[(1, 7), (1, 9), (1, 20)], &one_index(30)),
        [70, 130, 100]
    );
    // A file that waits for a far boundary still ends at twice the target.
    assert_eq!(files(100, &[(9, 0)], &one_index(45)), [200, 200, 50]);
}

#[test]
fn a_flush_ends_files_at_every_boundary_worth_a_piece() {
    let boundaries = [5, 13, 30, 31, 60].map(|n| key(1, n)).to_vec();
    let splitter = Splitter::for_flush(800, boundaries);
    // 50 bytes are too few for a piece, and so are the 10 bytes from 30 to 31.
    assert_eq!(cuts(splitter, &one_index(70)), [130, 170, 300, 100]);
}

#[test]
fn boundaries_passed_make_the_next_one_less_welcome() {
    let many: Vec<(u32, u32)> = (1..30).map(|n| (1, n)).collect();
    let one = files(1000, &many, &one_index(100));
    // With one boundary per entry the required share rises to its maximum of 90 percent before the
    // file has that size, and by then all boundaries are passed. Behind the last one the target
    // holds.
    assert_eq!(one, [1000]);
    let every_ten: Vec<(u32, u32)> = (1..30).map(|n| (1, n * 10)).collect();
    // The required share is 50 percent and 5 more for each boundary passed: the eighth boundary
    // comes at 80 percent with 85 required, the ninth at 90 with 90.
    assert_eq!(files(1000, &every_ten, &one_index(200)), [900, 900, 200]);
}

#[test]
fn indexes_part_once_a_piece_is_worth_a_file() {
    let keys: Vec<Vec<u8>> = (0..1000).map(|i| key(i, 0)).collect();
    // A thousand tables of one ten-byte entry: 25 of them share a file.
    let all = files(1000, &[], &keys);
    assert!(all.iter().all(|&s| s == 250), "{all:?}");
    let mut two = one_index(30);
    two.extend((0..30).map(|n| key(2, n)));
    assert_eq!(files(1000, &[], &two), [300, 300]);
}

#[test]
fn boundaries_part_what_they_lie_in() {
    let splitter = Splitter::new(1000, vec![key(1, 10), key(1, 20)]);
    let parts = |from, to| splitter.parts(&key(1, from), &key(1, to));
    assert!(parts(5, 10) && parts(9, 30) && parts(10, 20));
    assert!(!parts(5, 9) && !parts(10, 19) && !parts(20, 90));
}

/// A splitter that looks for its boundaries splits as one that has them all, except that it does
/// not count the boundaries before its first key.
#[test]
fn searched_boundaries_are_those_of_a_list() {
    let boundaries: Vec<Vec<u8>> = (0..300).map(|n| key(1, n * n % 997 + 3 * n)).collect();
    for (target, start) in [(100, 0), (250, 0), (1000, 0), (300, 400)] {
        let mut sorted = boundaries.clone();
        sorted.sort();
        sorted.dedup();
        let keys: Vec<Vec<u8>> = (start..2000).step_by(3).map(|n| key(1, n)).collect();
        sorted.retain(|b| *b > keys[0]);
        let known = sorted.clone();
        let search: BoundarySearch = Box::new(move |above, up_to| {
            let from = known.partition_point(|b| b.as_slice() <= above);
            let to = known.partition_point(|b| b.as_slice() <= up_to);
            CrossedBoundaries {
                count: (to - from) as u64,
                last: known[from..to].last().cloned(),
                next: known.get(to).cloned(),
            }
        });
        let searched = Splitter::with_search(target, search);
        let parts = |splitter: &Splitter| {
            let pairs = keys
                .windows(2)
                .map(|pair| splitter.parts(&pair[0], &pair[1]));
            pairs.collect::<Vec<_>>()
        };
        let listed = Splitter::new(target, sorted.clone());
        assert_eq!(parts(&searched), parts(&listed));
        assert_eq!(cuts(searched, &keys), cuts(listed, &keys));
    }
}

#[test]
fn files_end_at_cuts_whatever_their_size() {
    let key = |n: u64| crate::compaction::testing::user_key(1, n);
    let mut splitter = Splitter::new(1000, Vec::new()).with_cuts(vec![key(10), key(20)]);
    assert!(splitter.parts(&key(5), &key(10)) && !splitter.parts(&key(10), &key(19)));
    assert!(!splitter.should_split(&key(5), &key(9), 1));
    assert!(splitter.should_split(&key(9), &key(10), 1));
    // The output has passed the cut: a file that begins there must not end before its first key.
    assert!(!splitter.should_split(&key(9), &key(10), 0));
    assert!(!splitter.should_split(&key(10), &key(19), 1));
    assert!(splitter.should_split(&key(19), &key(30), 1));
    assert!(!splitter.parts(&key(5), &key(30)));
}
