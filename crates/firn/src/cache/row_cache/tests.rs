mod interleavings;
mod model;

use super::*;
use crate::base::Kind;

const SEALED: SealPoint = SealPoint {
    number: 3,
    seqno: 50,
};

fn offer(cache: &RowCache, name: &[u8], seqno: Seqno, kind: Kind, value: Value<'_>) {
    let key = InternalKey::new(name, seqno, kind);
    cache.offer(KeyHash::of(name), SEALED, 90, key, value);
}

fn get(cache: &RowCache, name: &[u8], seqno: Seqno) -> Option<(Seqno, Vec<u8>, Vec<u8>)> {
    cache.get(KeyHash::of(name), name, seqno, 4, |key, value| {
        assert_eq!((key.user_key, key.kind), (name, Kind::Put));
        (key.seqno, value.head.to_vec(), value.tail.to_vec())
    })
}

#[test]
fn the_first_touch_lets_a_row_in_while_there_is_room() {
    let cache = RowCache::new(1 << 20);
    let value = Value::split(b"head", b"tail");
    assert_eq!(get(&cache, b"k", 90), None);
    offer(&cache, b"k", 40, Kind::Put, value);
    let found = Some((40, b"head".to_vec(), b"tail".to_vec()));
    assert_eq!(get(&cache, b"k", 90), found);
    assert_eq!(get(&cache, b"k", 39), None);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (1, 2, 1));
}

#[test]
fn the_second_touch_lets_a_row_into_a_full_cache() {
    let cache = RowCache::new(1 << 20);
    let others = |from: u32| {
        for i in from..from + 10_000 {
            let value = Value::whole(&[0; 60]);
            offer(&cache, &i.to_be_bytes(), 40, Kind::Put, value);
        }
    };
    others(0);
    let full = cache.stats();
    assert!(full.bytes > (1 << 20) / 10 * 9, "{full:?}");
    let enters = |name: &[u8]| {
        offer(&cache, name, 40, Kind::Put, Value::whole(b"v"));
        get(&cache, name, 90).is_some()
    };
    assert!(!enters(b"k"));
    assert!(enters(b"k"));
    // The bytes of an erased row count as free after the next flush, or after a change of the
    // capacity.
    cache.set_capacity(2 << 20);
    assert!(enters(b"l"));
    others(20_000);
    others(30_000);
    assert!(!enters(b"m"));
    cache.set_capacity(1 << 19);
    assert!(!enters(b"n"));
    assert!(enters(b"n"));
}

#[test]
fn deletions_stay_out() {
    let cache = RowCache::new(1 << 20);
    for _ in 0..3 {
        offer(&cache, b"k", 40, Kind::Delete, Value::EMPTY);
    }
    assert_eq!(cache.stats().entries, 0);
}

#[test]
fn a_key_of_the_same_hash_is_another_key() {
    let cache = RowCache::new(1 << 20);
    let hash = KeyHash(1 << 48);
    let key = InternalKey::new(b"k", 40, Kind::Put);
    for _ in 0..2 {
        cache.offer(hash, SEALED, 90, key, Value::whole(b"v"));
    }
    assert!(cache.get(hash, b"k", 90, 4, |_, _| ()).is_some());
    assert!(cache.get(hash, b"l", 90, 4, |_, _| ()).is_none());
}

#[test]
fn no_row_takes_its_shard_for_itself() {
    let cache = RowCache::new(64 << 10);
    offer(&cache, b"small", 40, Kind::Put, Value::whole(b"v"));
    offer(&cache, b"small", 40, Kind::Put, Value::whole(b"v"));
    let large = vec![0; 8 << 10];
    offer(&cache, b"large", 40, Kind::Put, Value::whole(&large));
    offer(&cache, b"large", 40, Kind::Put, Value::whole(&large));
    assert!(get(&cache, b"small", 90).is_some());
    assert!(get(&cache, b"large", 90).is_none());
}

#[test]
fn a_row_may_be_read_from_inside_a_row() {
    let cache = RowCache::new(1 << 20);
    for _ in 0..2 {
        offer(&cache, b"k", 40, Kind::Put, Value::whole(b"v"));
    }
    let hash = KeyHash::of(b"k");
    let inner = cache.get(hash, b"k", 90, 4, |_, _| {
        cache.retire(4, &mut Nothing).unwrap();
        cache.get(hash, b"k", 90, 4, |_, value| value.len())
    });
    assert_eq!(inner, Some(Some(1)));
}

/// An iterator without entries.
struct Nothing;

impl InternalIterator for Nothing {
    fn seek_to_first(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn seek(&mut self, _: &[u8], _: Seqno) -> Result<bool> {
        Ok(false)
    }
    fn seek_before(&mut self, _: &[u8]) -> Result<bool> {
        Ok(false)
    }
    fn next(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn prev(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn valid(&self) -> bool {
        false
    }
    fn key(&self) -> InternalKey<'_> {
        unreachable!("never valid")
    }
    fn value(&self) -> Value<'_> {
        unreachable!("never valid")
    }
}

/// The constant [`ENTRY_OVERHEAD`] is not less than the memory that the cache takes beside the
/// rows.
#[test]
fn the_weight_covers_the_tables() {
    let capacity = 4 << 20;
    let cache = RowCache::new(capacity);
    for i in 0..100_000u32 {
        let name = i.to_be_bytes();
        for _ in 0..2 {
            offer(&cache, &name, 40, Kind::Put, Value::whole(&[0; 60]));
        }
    }
    let stats = cache.stats();
    assert!(stats.bytes <= capacity + cache.admission.bytes());
    assert!(stats.bytes > capacity / 2, "{stats:?}");
    let tables: usize = cache
        .shards
        .iter()
        .map(|s| s.with(Shard::table_bytes))
        .sum();
    // Reference counts and the allocator header of each row take 32 bytes.
    let around = 32 * stats.entries + tables as u64;
    assert!(
        around <= stats.entries * ENTRY_OVERHEAD,
        "{} bytes an entry",
        around / stats.entries
    );
    cache.set_capacity(0);
    assert_eq!(cache.stats().entries, 0);
}
