use super::*;
use crate::base::{InternalKey, Kind, Value};
use crate::blob::BlobStore;
use crate::cache::RowCache;
use crate::env::MemEnv;
use crate::memtable::Memtable;
use crate::read::{ReadPoint, SuperVersions};
use crate::store::FileStore;
use crate::version::Version;

fn key(n: u32) -> Vec<u8> {
    [7u32.to_be_bytes(), n.to_be_bytes()].concat()
}

/// A memtable with deletions of the keys from `0` to `end`, except for rows in `rows`.
fn point(end: u32, rows: impl Fn(u32) -> bool) -> ReadPoint {
    let memtable = Memtable::new(1, 1);
    for n in 0..end {
        let kind = if rows(n) { Kind::Put } else { Kind::Delete };
        let value = Value::whole(b"");
        memtable.insert(InternalKey::new(&key(n), 5, kind), value);
    }
    let files = FileStore::new(Arc::new(MemEnv::new()), "/sample");
    let super_versions = SuperVersions::new(
        Arc::new(memtable),
        Arc::new(Version::default()),
        Arc::new(AtomicU64::new(9)),
        Arc::new(RowCache::new(0)),
        Arc::new(BlobStore::read_only(files, 1 << 20)),
    );
    super_versions.latest()
}

fn sources(point: &ReadPoint) -> Vec<ScanSource> {
    vec![ScanSource::Memtable(point.super_version.active.iter())]
}

/// The limit on skipped entries counts those of one sample, not those of all samples before.
#[test]
fn a_sample_is_not_cut_short_by_the_samples_before() {
    // 1000 deletions and a row; then ten rows, 200 deletions, and rows.
    let second = 1001;
    let rows = |n: u32| n == 1000 || (second..second + 10).contains(&n) || n >= second + 210;
    let point = point(second + 400, rows);
    let range = ScanRange {
        lower: key(0),
        upper: Some(key(u32::MAX)),
    };
    let mut reading = SampleReader::new(sources(&point), &range, point.seqno);
    let first = reading.read(&key(0), Some(&key(second)), PART_ROWS, PART_SKIPS);
    assert!(matches!(first, Ok(SampleEnd::Until { rows: 0, .. })));
    let second = reading.read(&key(second), None, PART_ROWS, PART_SKIPS);
    assert!(matches!(
        second,
        Ok(SampleEnd::Until {
            rows: PART_ROWS,
            ..
        })
    ));
}

/// A sample without a row still ends.
#[test]
fn a_sample_ends_among_deletions() {
    let point = point(5000, |_| false);
    let range = ScanRange {
        lower: key(0),
        upper: Some(key(u32::MAX)),
    };
    let mut reading = SampleReader::new(sources(&point), &range, point.seqno);
    for _ in 0..3 {
        let end = reading.read(&key(0), None, PART_ROWS, PART_SKIPS);
        let Ok(SampleEnd::Amid { rows: 0, key: end }) = end else {
            panic!("it has found rows");
        };
        assert_eq!(end, key(SKIPS_A_CHECK as u32 - 1));
    }
}
