use super::*;
use crate::base::{InternalKey, Kind, Value, checksum::xxh3};
use std::sync::Arc;

fn built(sectioned: bool, hash_index: bool, entries: u32) -> Block {
    let mut builder = BlockBuilder::new(sectioned, hash_index);
    for i in 0..entries {
        let key = (i * 2).to_be_bytes();
        let value = Value::split(b"head", &key[..i as usize % 4]);
        builder.add(InternalKey::new(&key, 5, Kind::Put), value, xxh3(&key));
    }
    let kind = if sectioned {
        BlockKind::Sectioned
    } else {
        BlockKind::RowWise
    };
    Block::new(kind, builder.finish().raw).unwrap()
}

#[test]
fn what_entries_share_is_stored_once() {
    let block = built(true, false, 100);
    let expected = TRAILER_SAME | HEAD_LEN_SAME | KEYS_FIXED;
    assert_eq!(block.header.flags, expected);
    assert_eq!(
        (block.header.head_len, block.header.trailer_base),
        (4, 5 << 8 | 1)
    );
}

#[test]
fn small_blocks_carry_no_hash_index() {
    assert_eq!(built(false, true, 32).header.buckets_len, 0);
    assert!(built(false, true, 33).header.buckets_len > 0);
    assert_eq!(built(false, false, 33).header.buckets_len, 0);
}

#[test]
fn keys_are_found_with_and_without_hash_index() {
    for sectioned in [false, true] {
        for hash_index in [false, true] {
            let block = built(sectioned, hash_index, 1000);
            for i in 0..2000u32 {
                let key = i.to_be_bytes();
                let found = block.get(&key, xxh3(&key), 9).unwrap();
                assert_eq!(
                    matches!(found, BlockGet::Hit(5, Kind::Put, _)),
                    i % 2 == 0,
                    "{i}"
                );
                let older = block.get(&key, xxh3(&key), 4).unwrap();
                assert!(!matches!(older, BlockGet::Hit(..)), "{i}");
            }
        }
    }
}

#[test]
fn a_cursor_turns_around_anywhere() {
    let block = Arc::new(built(true, false, 50));
    let mut cursor = BlockIter::default();
    cursor.enter(block);
    for turn in 0..50u32 {
        assert!(cursor.seek(&(turn * 2).to_be_bytes(), 9).unwrap());
        for at in (0..turn).rev() {
            assert!(cursor.prev().unwrap());
            assert_eq!(cursor.key().user_key, (at * 2).to_be_bytes());
            assert_eq!(cursor.ordinal(), at);
        }
        assert!(!cursor.prev().unwrap());
        assert!(!cursor.valid());
    }
}
