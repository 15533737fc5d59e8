use super::super::testing::TestBinlog;
use super::*;
use crate::env::MemEnv;

fn kinds(env: &dyn Env) -> (Vec<u8>, bool) {
    let mut events = Events::open(env, Path::new("d/bin.000001")).unwrap();
    let mut kinds = Vec::new();
    loop {
        match events.next().unwrap() {
            NextEvent::Event { kind, .. } => kinds.push(kind),
            NextEvent::End => return (kinds, false),
            NextEvent::Torn | NextEvent::Damaged => return (kinds, true),
        }
    }
}

fn env() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("d")).unwrap();
    env
}

#[test]
fn events_larger_than_the_buffer_are_passed_over() {
    for checksums in [false, true] {
        let env = env();
        let mut file = TestBinlog::begin(1, true, checksums);
        file.transaction(1, 0)
            .transaction(2, 700 << 10)
            .transaction(3, BUFFER as usize);
        file.rotate("bin.000002").save(&env, "d/bin.000001");
        assert_eq!(kinds(&env), (vec![2, XID, 2, XID, 2, XID, ROTATE], false));
    }
}

#[test]
fn every_cut_is_found() {
    let env = env();
    let mut file = TestBinlog::begin(1, true, true);
    let head = file.bytes().len();
    file.transaction(1, 30);
    let whole = file.bytes().clone();
    let ends = [head, head + 19 + 30 + 4, whole.len()];
    for len in 0..=whole.len() {
        *file.bytes() = whole[..len].to_vec();
        file.save(&env, "d/bin.000001");
        if len < head {
            assert!(Events::open(&env, Path::new("d/bin.000001")).is_err());
            continue;
        }
        let count = ends.iter().filter(|end| **end <= len).count() - 1;
        assert_eq!(
            kinds(&env),
            ([2, XID][..count].to_vec(), !ends.contains(&len))
        );
    }
}

#[test]
fn every_changed_byte_is_found() {
    let env = env();
    let mut file = TestBinlog::begin(1, true, true);
    let head = file.bytes().len();
    file.transaction(1, 30);
    let whole = file.bytes().clone();
    for at in 0..whole.len() {
        // The checksum of the description does not cover the flag of a file in use.
        if at == 4 + 17 {
            continue;
        }
        *file.bytes() = whole.clone();
        file.bytes()[at] ^= 0x10;
        file.save(&env, "d/bin.000001");
        match Events::open(&env, Path::new("d/bin.000001")) {
            Err(_) => assert!(at < head),
            Ok(_) => assert!(at >= head && kinds(&env).1, "byte {at}"),
        }
    }
}

#[test]
fn the_description_says_whose_file_it_is() {
    let env = env();
    let mut file = TestBinlog::begin(77, false, true);
    file.save(&env, "d/bin.000001");
    let description = Events::open(&env, Path::new("d/bin.000001"))
        .unwrap()
        .description;
    let expected = Description {
        created: 77,
        server_id: 5,
        is_first: false,
        in_use: true,
    };
    assert_eq!(description, expected);
    file.encrypt().save(&env, "d/bin.000001");
    let mut events = Events::open(&env, Path::new("d/bin.000001")).unwrap();
    let error = events.next().unwrap_err();
    assert_eq!(error.kind(), &crate::base::ErrorKind::Unsupported);
}

#[test]
fn whatever_the_bytes_reading_ends() {
    let env = env();
    let mut file = TestBinlog::begin(1, true, false);
    file.transaction(1, 30)
        .transaction(2, 0)
        .rotate("bin.000002");
    let whole = file.bytes().clone();
    let mut read = 0;
    for at in 4..whole.len() {
        for change in [0x01, 0x08, 0x10, 0x80, 0xff, whole[at]] {
            *file.bytes() = whole.clone();
            file.bytes()[at] ^= change;
            file.save(&env, "d/bin.000001");
            if Events::open(&env, Path::new("d/bin.000001")).is_err() {
                continue;
            }
            let mut events = Events::open(&env, Path::new("d/bin.000001")).unwrap();
            let mut left = whole.len();
            while let Ok(NextEvent::Event { .. }) = events.next() {
                // Each event takes at least the 19 bytes of its header.
                left = left
                    .checked_sub(19)
                    .expect("more events than the file has room for");
                read += 1;
            }
        }
    }
    assert!(read > 1000);
}
