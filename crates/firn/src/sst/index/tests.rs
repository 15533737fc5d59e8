use super::*;
use std::sync::Arc;

#[test]
fn separators_are_short_and_in_between() {
    for (last, next, expected) in [
        ("apple", "cherry", "b"),
        ("apple", "banana", "aq"),
        ("abc", "abd", "abc"),
        ("abc", "abcd", "abc"),
        ("abc", "abc", "abc"),
        ("abcdef", "abd", "abce"),
        ("a\u{7f}", "b", "a\u{7f}"),
    ] {
        let found = separator(last.as_bytes(), next.as_bytes());
        assert_eq!(found, expected.as_bytes(), "{last} {next}");
    }
    let found = separator(&[1, 0xff, 0xff, 3, 9], &[2]);
    assert_eq!(found, [1, 0xff, 0xff, 4]);
}

fn index(separators: &[&[u8]]) -> Index {
    let mut builder = IndexBuilder::new(40, 0);
    for (i, separator) in separators.iter().enumerate() {
        let mut stats = BlockStats::default();
        stats.add_entry(i as u64, i % 2 == 0);
        let handle = Handle {
            offset: i as u64 * 10,
            len: 10,
        };
        builder.add(separator, BlockEntry { handle, stats }, &[]);
    }
    let partitions = builder.finish();
    let raw: Vec<Vec<u8>> = partitions.iter().map(|p| p.raw_index.clone()).collect();
    let none = Handle::default();
    let placed: Vec<_> = partitions.into_iter().map(|p| (p, none, none)).collect();
    let top = Index::decode_top(&top_index(&placed)).unwrap();
    let load = |number, data_end| {
        let partition = top.decode(number, data_end, &raw[number as usize], None);
        partition.map(Arc::new)
    };
    top.with_all(load).unwrap()
}

#[test]
fn the_first_block_that_reaches_the_key_is_found() {
    let keys: Vec<Vec<u8>> = (0..200u64)
        .flat_map(|i| {
            let long = [&[0, 0, 0, 1], &(i * 1000).to_be_bytes()[..], b"tail"].concat();
            [long[..12].to_vec(), long]
        })
        .collect();
    let separators: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
    let index = index(&separators);
    assert_eq!(index.entries(), 400);
    let mut probes: Vec<Vec<u8>> = vec![vec![], vec![0, 0, 0], vec![0, 0, 0, 0, 9], vec![9]];
    for key in &keys {
        probes.push(key.clone());
        probes.push([&key[..], b"\0"].concat());
        probes.push(key[..key.len() - 1].to_vec());
    }
    for probe in probes {
        let expected = keys.iter().position(|k| *k >= probe);
        let found = index
            .find(&probe)
            .map(|spot| index.block(spot).handle.offset / 10);
        assert_eq!(found, expected.map(|i| i as u64), "{probe:?}");
        if let Some(spot) = index.find(&probe) {
            let partition = index.partition(spot.partition).unwrap();
            let before = index.entries_before_partition(spot.partition);
            assert_eq!(Some(before + partition.entries_before(spot.block)), found);
        }
    }
}

#[test]
fn blocks_are_walked_both_ways() {
    let keys: Vec<[u8; 5]> = (0..100).map(|i| [0, 0, 0, 1, i]).collect();
    let separators: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
    let index = index(&separators);
    let forward: Vec<BlockPosition> = index.spots().collect();
    let mut backward: Vec<BlockPosition> =
        std::iter::successors(index.last(), |&spot| index.prev(spot)).collect();
    backward.reverse();
    assert_eq!(forward.len(), 100);
    assert_eq!(forward, backward);
}
