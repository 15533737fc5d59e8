use super::super::{Env, PosixEnv};
use crate::env::ReadClass;
use std::path::Path;

fn write(path: &Path, bytes: &[u8]) {
    let mut file = PosixEnv::new().create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

/// Every offset and length around the blocks of a file that ends within a block.
#[test]
fn direct_reads_give_what_the_file_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let content: Vec<u8> = (0..10_000u32).map(|n| ((n * 31) >> 3) as u8).collect();
    write(&path, &content);
    let file = PosixEnv::new().open_direct(&path).unwrap();
    assert_eq!(file.size().unwrap(), 10_000);
    let places = [0, 1, 511, 512, 4095, 4096, 4097, 8191, 8192, 9999];
    for from in places {
        for len in [0, 1, 100, 4095, 4096, 4097, 8192] {
            let mut buf = vec![0; len];
            let read = file.read_exact_at(ReadClass::Point, from as u64, &mut buf);
            match content.get(from..from + len) {
                Some(expected) => {
                    read.unwrap();
                    assert_eq!(buf, expected, "{len} bytes at {from}");
                }
                None => assert!(read.is_err(), "{len} bytes at {from}"),
            }
        }
    }
    // A large read, whose buffer is not kept.
    let large = vec![7; 3 << 20];
    write(&path, &large);
    let file = PosixEnv::new().open_direct(&path).unwrap();
    let mut buf = vec![0; large.len() - 5];
    file.read_exact_at(ReadClass::Point, 5, &mut buf).unwrap();
    assert!(buf == large[5..]);
}
