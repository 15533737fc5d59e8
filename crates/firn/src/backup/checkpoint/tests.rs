use super::*;
use crate::env::MemEnv;

#[test]
fn what_a_checkpoint_tells_comes_back() {
    for binlog in [
        BinlogPlace::default(),
        BinlogPlace {
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
