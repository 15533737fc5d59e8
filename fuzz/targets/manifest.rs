//! Opens a tree from arbitrary manifests. The open must succeed or return an error, never panic; an
//! accepted manifest must be accepted again, with the same tree.
//!
//! The first byte of the input selects the form of the rest: a manifest file (even), or its edits,
//! each after its length (two bytes), which are put into valid records (odd). The second form gets
//! the fuzzer past the checksums.

use firn::base::checksum::placed;
use firn::base::epoch::DatabaseId;
use firn::base::event_listener::Silent;
use firn::base::health::Health;
use firn::base::{CounterValue, ErrorKind};
use firn::env::{Env, MemEnv};
use firn::sst::{IndexStats, SstBlockCache};
use firn::store::FileKind;
use firn::store::FileStore;
use firn::version::{
    DatabaseIdentity, DeferredDeletion, Edit, FileLocation, FileMeta, FileSource, ManifestState,
    VersionSet, VersionSetContext, manifest_name,
};
use firn::wal::Gtid;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/db";
const ID: u64 = 7;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let content = match mode % 2 {
        0 => rest.to_vec(),
        _ => framed(rest),
    };
    let env = MemEnv::new();
    env.create_dir_all(Path::new(DIR)).expect("a directory");
    env.place(&Path::new(DIR).join(manifest_name(ID)), content);
    let name = manifest_name(ID);
    let current = format!("{name} {:016x}\n", placed(name.as_bytes(), ID, 0));
    env.place(&Path::new(DIR).join("CURRENT"), current.into_bytes());
    match open(&env) {
        Err(error) => assert!(
            error.is_corruption() || *error.kind() == ErrorKind::Unsupported,
            "{error}"
        ),
        Ok(set) => {
            assert_eq!(set.current().check_all(), None);
            set.current().index_stats(1);
            let found = summary(&set);
            drop(set);
            let again = match open(&env) {
                // Each open takes a file id, and the manifest may leave none.
                Err(error) if error.is_unsupported() => return,
                opened => opened.expect("what was accepted once"),
            };
            assert_eq!(summary(&again), found);
            let edit = Edit {
                counters: vec![(1, 1.into())],
                ..Edit::default()
            };
            again.apply(edit).expect("an edit of a counter");
        }
    }
}

/// Initial inputs: edits as a version set writes them, in both forms.
pub fn seeds() -> Vec<Vec<u8>> {
    let edits = edits();
    let mut payloads = vec![1];
    for edit in &edits {
        let payload = edit.encode();
        payloads.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        payloads.extend(payload);
    }
    let mut file = vec![0];
    file.extend(framed(&payloads[1..]));
    vec![file, payloads]
}

fn edits() -> Vec<Edit> {
    let file = |file_id, smallest: &[u8], largest: &[u8]| FileMeta {
        file_id,
        size: 1000,
        checksum: file_id,
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        min_seqno: 1,
        max_seqno: 9,
        entries: 10,
        deletes: 1,
        dense_deletes: file_id % 2,
        superseded: 2,
        raw_bytes: 2000,
        at_rest: file_id == 11,
        external_seqno: None,
        per_index: vec![IndexStats {
            index: 1,
            entries: 10,
            deletes: 1,
            raw_bytes: 2000,
            stored_bytes: 1000,
        }],
        blobs: Vec::new(),
        location: FileLocation::Local,
        tail_len: 100 * (file_id % 2),
    };
    let a = file(9, b"\0\0\0\x01a", b"\0\0\0\x01f");
    let flush = Edit {
        added: vec![
            (0, 1, a.clone()),
            (0, 1, file(10, b"\0\0\0\x01g", b"\0\0\0\x01k")),
        ],
        log_number: Some(3),
        next_file_id: Some(11),
        next_run_number: Some(2),
        last_seqno: Some(9),
        counters: vec![
            (1, 5.into()),
            (
                2,
                CounterValue {
                    generation: 3,
                    value: 1 << 20,
                },
            ),
        ],
        gtids: vec![Gtid {
            domain: 1,
            server: 1 << 31,
            sequence: 1 << 40,
        }],
        time_pairs: vec![(9, 1_700_000_000_000_000)],
        ..Edit::default()
    };
    let merge = Edit {
        added: vec![(4, 0, a), (6, 0, file(11, b"\0\0\0\x01g", b"\0\0\0\x01k"))],
        removed: vec![(0, 9), (0, 10)],
        ..Edit::default()
    };
    let mut begun = ManifestState::default().snapshot();
    begun.identity = Some(identity(0));
    let mut epoch = Edit {
        identity: Some(identity(1)),
        ..Edit::default()
    };
    epoch.deferred = [(FileKind::Sst, 3), (FileKind::Blob, 4)]
        .map(|(kind, slot)| DeferredDeletion {
            kind,
            file: 9 + slot,
            epoch: 0,
            slot,
        })
        .to_vec();
    let done = epoch.deferred.iter().map(|deferred| DeferredDeletion {
        slot: 0,
        ..*deferred
    });
    let done = Edit {
        deferred: done.collect(),
        ..Edit::default()
    };
    vec![begun, flush, merge, epoch, done]
}

fn identity(epoch: u64) -> DatabaseIdentity {
    DatabaseIdentity {
        epoch,
        after: epoch << 33,
        database: DatabaseId([7; 16]),
    }
}

/// A manifest with these edits in valid records, each followed by its mark (an empty record).
fn framed(mut payloads: &[u8]) -> Vec<u8> {
    let mut file = b"FIRNMANI".to_vec();
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&ID.to_le_bytes());
    let sum = placed(&file, ID, 0);
    file.extend_from_slice(&sum.to_le_bytes());
    while let Some((len, rest)) = payloads.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        for payload in [payload, &[]] {
            let mut record = (payload.len() as u32).to_le_bytes().to_vec();
            record.extend_from_slice(payload);
            let sum = placed(&record, ID, file.len() as u64);
            file.extend_from_slice(&sum.to_le_bytes());
            file.extend(record);
        }
        payloads = rest;
    }
    file
}

fn open(env: &MemEnv) -> firn::base::Result<VersionSet> {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    let store = FileStore::new(env.clone(), DIR);
    VersionSet::open(VersionSetContext {
        env,
        dir: DIR.into(),
        source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
        health: Arc::new(Health::new()),
        listener: Arc::new(Silent),
    })
}

/// The contents of a tree, as text for comparison.
fn summary(set: &VersionSet) -> String {
    let version = set.current();
    let files: Vec<_> = version
        .files()
        .map(|(level, f)| (level, f.meta().clone()))
        .collect();
    let numbers = (set.log_number(), set.last_seqno());
    format!(
        "{files:?} {numbers:?} {:?} {:?}",
        set.counters(),
        set.time_pairs()
    )
}
