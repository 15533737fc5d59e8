use super::*;
use crate::base::ErrorKind;
use crate::env::ReadClass;

#[test]
fn log_blocks_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let env = PosixEnv::new();
    let path = dir.path().join("log");
    let log = env.open_log(&path, true, true).unwrap();
    log.preallocate(4 * BLOCK as u64).unwrap();
    let mut buf = AlignedBuf::new();
    buf.extend_from_slice(&[7; BLOCK + 1]);
    log.write_durable_at(BLOCK as u64, &buf).unwrap();
    log.write_at(0, &{
        let mut b = AlignedBuf::new();
        b.extend_from_slice(b"x");
        b
    })
    .unwrap();
    log.sync().unwrap();
    let file = env.open(&path).unwrap();
    assert_eq!(file.size().unwrap(), 4 * BLOCK as u64);
    let mut all = vec![1; 4 * BLOCK];
    file.read_exact_at(ReadClass::Point, 0, &mut all).unwrap();
    assert_eq!(&all[..2], b"x\0");
    assert!(all[BLOCK..2 * BLOCK + 1].iter().all(|&b| b == 7));
    assert!(all[2 * BLOCK + 1..].iter().all(|&b| b == 0));
}

/// Reserved space reads as zeros, has the requested size, and takes blocks of the disk at once.
#[test]
fn reserved_room_is_there() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let env = PosixEnv::new();
    let log = env.open_log(&path, true, true).unwrap();
    log.reserve(4 * BLOCK as u64).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.len(), meta.blocks()),
        (4 * BLOCK as u64, 4 * BLOCK as u64 / 512)
    );
    let mut all = vec![1; 4 * BLOCK];
    let file = env.open(&path).unwrap();
    file.read_exact_at(ReadClass::Point, 0, &mut all).unwrap();
    assert!(all.iter().all(|&b| b == 0));
    let mut buf = AlignedBuf::new();
    buf.extend_from_slice(&[7; BLOCK]);
    log.write_durable_at(BLOCK as u64, &buf).unwrap();
    file.read_exact_at(ReadClass::Point, 0, &mut all).unwrap();
    assert!(all[BLOCK..2 * BLOCK].iter().all(|&b| b == 7));
}

#[test]
fn the_lock_is_exclusive() {
    let dir = tempfile::tempdir().unwrap();
    let env = PosixEnv::new();
    let path = dir.path().join("LOCK");
    let held = env.lock(&path).unwrap();
    assert_eq!(env.lock(&path).err().unwrap().kind(), &ErrorKind::Busy);
    drop(held);
    env.lock(&path).unwrap();
}

#[test]
fn a_missing_file_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let env = PosixEnv::new();
    assert_eq!(
        env.open(&dir.path().join("x")).err().unwrap().kind(),
        &ErrorKind::NotFound
    );
}

#[test]
fn a_hint_changes_no_read() {
    let dir = tempfile::tempdir().unwrap();
    let env = CountingEnv::new(Arc::new(PosixEnv::new()));
    let path = dir.path().join("file");
    let mut file = env.create(&path).unwrap();
    file.append(&[7; 10_000]).unwrap();
    file.sync().unwrap();
    let file = env.open(&path).unwrap();
    for (offset, len) in [
        (0, 10_000),
        (4096, 1),
        (9_999, 1 << 30),
        (1 << 40, 4096),
        (0, 0),
    ] {
        let mut reads = PrefetchBatch::new();
        file.prefetch(offset, len, &mut reads);
        reads.start();
    }
    let mut bytes = vec![0; 10_000];
    file.read_exact_at(ReadClass::Point, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
    assert_eq!(env.counters().file_reads().reads(), 1);
}
