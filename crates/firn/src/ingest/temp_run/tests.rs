use super::*;
use crate::base::{Kind, Value};
use crate::env::{MemEnv, ReadClass};
use std::path::Path;

fn store() -> FileStore {
    FileStore::new(Arc::new(MemEnv::new()), "/")
}

fn write(store: &FileStore, count: u32) -> TempRun {
    let mut writer = TempRunWriter::create(store, 9).unwrap();
    for i in 0..count {
        let key = [&[0, 0, 0, 1][..], &i.to_be_bytes()].concat();
        // Some values compress, some are larger than a block.
        let head = vec![
            i as u8;
            if i % 500 == 0 {
                3 * BLOCK
            } else {
                (i % 90) as usize
            }
        ];
        let entry = LoadEntry {
            user_key: &key,
            unique_len: 4,
            kind: Kind::Put,
            value: Value::split(&head, &key),
        };
        writer.add(entry).unwrap();
    }
    assert!(writer.bytes() > 0 || count < 1000);
    writer.finish().unwrap()
}

#[test]
fn a_run_comes_back_and_goes() {
    let store = store();
    for count in [0, 1, 1700] {
        let run = write(&store, count);
        let mut reader = run.read().unwrap();
        for i in 0..count {
            let entry = reader.entry().unwrap();
            assert_eq!(entry.user_key[4..], i.to_be_bytes());
            assert_eq!(entry.value.tail, entry.user_key);
            assert_eq!((entry.unique_len, entry.kind), (4, Kind::Put));
            reader.advance().unwrap();
        }
        assert!(reader.entry().is_none());
        reader.advance().unwrap();
        assert!(reader.entry().is_none());
        drop(reader);
        assert!(store.env().list_dir(Path::new("/")).unwrap().is_empty());
    }
}

#[test]
fn damage_is_an_error_that_names_the_file() {
    let store = store();
    let run = write(&store, 2000);
    let path = store.path(FileKind::Sort, 9);
    let len = store.env().open(&path).unwrap().size().unwrap() as usize;
    let mut bytes = vec![0; len];
    store
        .env()
        .open(&path)
        .unwrap()
        .read_exact_at(ReadClass::Load, 0, &mut bytes)
        .unwrap();
    bytes[len / 2] ^= 4;
    store.env().create(&path).unwrap().append(&bytes).unwrap();
    let mut reader = run.read().unwrap();
    let error = (0..2000).find_map(|_| reader.advance().err()).unwrap();
    assert!(
        error.is_corruption() && error.to_string().contains("0000000009.sort"),
        "{error}"
    );
}
