use super::*;
use crate::backup::copy_files::{copy, copy_changed};
use crate::env::{BLOCK, MemEnv, PosixEnv, ReadClass};

#[test]
fn what_a_checkpoint_tells_comes_back() {
    for binlog in [
        OwnedBinlogPosition::default(),
        OwnedBinlogPosition {
            name: b"server-bin with a space.000012".to_vec(),
            pos: 4711,
        },
    ] {
        let info = CheckpointInfo { seqno: 12, binlog };
        let text = info.encode();
        assert_eq!(CheckpointInfo::decode(&text), Some(info));
        for cut in 0..text.len() {
            assert_eq!(CheckpointInfo::decode(&text[..cut]), None, "{cut}");
        }
    }
    for wrong in [
        "firn checkpoint 2\nseqno 1\n",
        "firn checkpoint 1\nseqno x\n",
    ] {
        assert_eq!(CheckpointInfo::decode(wrong), None, "{wrong}");
    }
}

#[test]
fn only_leftovers_are_removed() {
    let env = MemEnv::new();
    let dir = Path::new("/c.tmp");
    env.place(&dir.join("0000000001.sst"), b"x".to_vec());
    env.place(&dir.join("000001.wal"), b"x".to_vec());
    env.place(&dir.join("diary"), b"x".to_vec());
    let error = remove_unfinished(&env, dir).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(env.list_dir(dir).unwrap().len(), 3);
    env.remove(&dir.join("diary")).unwrap();
    remove_unfinished(&env, dir).unwrap();
    assert!(!env.exists(dir).unwrap());
}

#[test]
fn a_copy_is_the_same_and_has_the_holes() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let env = PosixEnv::new();
    let filled = |len: usize, spans: &[(usize, usize)]| {
        let mut bytes = vec![0; len];
        for &(at, len) in spans {
            bytes[at..at + len].fill(7);
        }
        bytes
    };
    for bytes in [
        filled(0, &[]),
        filled(5000, &[]),
        filled(5000, &[(4999, 1)]),
        filled(3 << 20, &[(0, 5000), (9000, 1), (2 << 20, 40_000)]),
        filled((4 << 20) + 1, &[(1 << 20, 1 << 20)]),
    ] {
        let mut file = env.create(&from).unwrap();
        file.append(&bytes).unwrap();
        file.sync().unwrap();
        let copied = copy(&env, &from, &to, u64::MAX).unwrap();
        let there = env.open(&to).unwrap();
        assert_eq!(there.size().unwrap(), bytes.len() as u64);
        let mut read = vec![1; bytes.len()];
        there
            .read_exact_at(ReadClass::Backup, 0, &mut read)
            .unwrap();
        assert!(read == bytes);
        let blocks = bytes.chunks(BLOCK).filter(|b| b.contains(&7)).count() + 1;
        assert!(copied <= (blocks * BLOCK) as u64, "{copied}");
        assert!(env.usage(&to).unwrap().allocated <= ((blocks + 2) * BLOCK) as u64);
        env.remove(&to).unwrap();
    }
}

#[test]
fn of_a_file_that_grows_only_what_has_changed_is_copied_again() {
    const LEN: usize = 5 << 20;
    let env = MemEnv::new();
    let (from, to) = (Path::new("/from"), Path::new("/to"));
    let mut bytes = vec![0; LEN];
    let mut known = Vec::new();
    let mut copy_now = |bytes: &[u8]| {
        env.place(from, bytes.to_vec());
        let copied = copy_changed(&env, from, to, u64::MAX, &mut known).unwrap();
        let copy = env.open(to).unwrap();
        let mut found = vec![1; copy.size().unwrap() as usize];
        copy.read_exact_at(ReadClass::Backup, 0, &mut found)
            .unwrap();
        assert!(found == bytes, "the copy differs");
        copied
    };
    bytes[..3 << 20].fill(7);
    let first = copy_now(&bytes[..4 << 20]);
    assert!((3 << 20..4 << 20).contains(&first), "{first}");
    // The file grows, and a span in the middle is written late.
    bytes[(4 << 20) + 9000..].fill(8);
    bytes[(3 << 20) + 50_000..][..10].fill(9);
    let second = copy_now(&bytes[..(4 << 20) + 30_000]);
    assert!(second < 100_000, "{second}");
    assert_eq!(copy_now(&bytes[..(4 << 20) + 30_000]), 0);
    let third = copy_now(&bytes);
    assert!(third <= 1 << 20, "{third}");
}
