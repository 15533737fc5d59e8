use super::*;
use crate::cache::BlockCache;
use crate::env::PosixEnv;
use crate::store::FileStore;
use crate::version::testing::file;
use crate::version::{FileSource, ManifestState};

fn source() -> Arc<FileSource> {
    let store = FileStore::new(Arc::new(PosixEnv::new()), "/nonexistent");
    FileSource::new(store, Arc::new(BlockCache::new(1 << 20)))
}

/// A version of files of 1000 bytes, given as (level, id, first byte, last byte).
fn version_of(files: &[(u8, u64, u8, u8)]) -> Version {
    let added = files.iter().map(|&(level, id, from, to)| {
        let run = if level == 0 { id } else { 0 };
        (level, run, file(id, &[0, 0, 0, 1, from], &[0, 0, 0, 1, to]))
    });
    let edit = Edit {
        added: added.collect(),
        ..Edit::default()
    };
    let mut state = ManifestState::default();
    state.apply(&edit);
    Version::of_state(&state, &source())
}

fn damaged(version: &Version, id: u64) -> DamagedFile {
    let (level, file) = version.files().find(|(_, f)| f.file_id == id).unwrap();
    DamagedFile {
        level,
        meta: Arc::clone(file.meta()),
        error: Error::corruption("file", 0, "damaged"),
        unreadable: false,
    }
}

fn put_in(version: &Version, ids: &[u64]) -> Version {
    ids.iter().fold(version.clone(), |version, id| {
        let file = damaged(&version, *id);
        version.with_quarantine(file).unwrap()
    })
}

#[test]
fn a_file_is_in_quarantine_until_it_leaves_the_tree() {
    let version = version_of(&[(5, 1, 0, 9), (6, 2, 0, 9)]);
    let quarantined = put_in(&version, &[1, 2]);
    assert!(!version.in_quarantine(1) && quarantined.in_quarantine(1));
    assert!(
        quarantined.with_quarantine(damaged(&version, 1)).is_none(),
        "is in already"
    );
    let moved = file(1, &[0, 0, 0, 1, 0], &[0, 0, 0, 1, 9]);
    let edit = Edit {
        removed: vec![(5, 1), (6, 2)],
        added: vec![(4, 0, moved)],
        ..Edit::default()
    };
    let next = quarantined.with(&edit, &source()).unwrap();
    let left: Vec<_> = { next.quarantine().iter() }
        .map(|d| (d.level, d.meta.file_id))
        .collect();
    assert_eq!(left, [(4, 1)]);
    assert!(
        next.with_quarantine(damaged(&version, 2)).is_none(),
        "has left the tree"
    );
}

#[test]
fn the_base_lies_above_damage() {
    let version = version_of(&[(0, 1, 0, 9), (1, 2, 0, 9), (4, 3, 0, 9), (6, 4, 0, 9)]);
    let base = |ids: &[u64]| put_in(&version, ids).base_level_max();
    assert_eq!([base(&[]), base(&[1]), base(&[4])], [6, 6, 5]);
    assert_eq!([base(&[3]), base(&[3, 4]), base(&[1, 2])], [3, 3, 1]);
}

#[test]
fn blocked_bytes_are_those_of_damage_and_right_above_it() {
    let version = version_of(&[
        (5, 1, 0, 9),
        (5, 2, 10, 19),
        (5, 3, 20, 29),
        (5, 4, 30, 39),
        (6, 5, 0, 11),
        (6, 6, 18, 19),
        (6, 7, 25, 30),
    ]);
    let blocked = |ids: &[u64], level| put_in(&version, ids).blocked(level).stored;
    assert_eq!(
        [blocked(&[], 5), blocked(&[5], 5), blocked(&[5], 6)],
        [0, 2000, 1000]
    );
    // Files 5 and 6 both lie below file 2.
    assert_eq!([blocked(&[5, 6], 5), blocked(&[5, 6], 6)], [2000, 2000]);
    assert_eq!([blocked(&[2, 7], 5), blocked(&[2, 7], 4)], [3000, 0]);
    assert_eq!([blocked(&[3, 7], 5), blocked(&[2], 6)], [2000, 0]);
}
