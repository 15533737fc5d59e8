//! Replays arbitrary WAL segments. Replay must succeed or return an error, never panic; a replayed
//! log must accept appends, and replay again with them.
//!
//! The first byte of the input selects the form of the rest, by its remainder modulo 3: segment
//! files (0); the records of one group, put into a valid segment (1); or the numbers of segment and
//! group headers, which get right checksums (2). The last two get the fuzzer past the checksums.

use firn::base::event_listener::Silent;
use firn::base::health::Health;
use firn::base::{ErrorKind, Result};
use firn::env::{AlignedBuf, BLOCK, Env, MemEnv, SECTOR};
use firn::wal::frame::{FIRST_GROUP, GROUP_HEADER, GroupHeader, SegmentHeader};
use firn::wal::{
    Gtid, LogEnd, OutcomeRoom, Record, ReplayEnd, ServerRunName, Wal, WalOptions, replay,
    segment_name,
};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/wal";
/// Size of a segment in the input, bytes: the smallest that the log accepts.
const SEGMENT: usize = 3 * BLOCK;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let env = MemEnv::new();
    env.create_dir_all(Path::new(DIR)).expect("a directory");
    match mode % 3 {
        0 => {
            for (at, segment) in rest.chunks(SEGMENT).enumerate() {
                place(&env, at as u64 + 1, segment.to_vec());
            }
        }
        1 => framed(&env, rest),
        _ => forged(&env, rest),
    }
    for first in [0, 1, 2] {
        match records(&env, first) {
            // Forged headers may contradict each other in ways that only a later replay notices.
            Ok((before, end)) if mode % 3 < 2 => goes_on(&env.kill(), first, before, end),
            Ok(_) => {}
            Err(error) => assert!(
                error.is_corruption() || error.kind() == &ErrorKind::Unsupported,
                "{error}"
            ),
        }
    }
}

/// Initial inputs: segments as a log writes them, each kind of record, and numbers of headers.
pub fn seeds() -> Vec<Vec<u8>> {
    let env = MemEnv::new();
    let mut prev = LogEnd::default();
    let mut first = 1;
    let mut files = vec![0];
    for run in 0..2 {
        env.set_log_sectors(run == 1);
        let wal = open(&env, first, prev).expect("a log");
        for n in 0..5 {
            let batch = vec![n; 1 + 700 * usize::from(n)];
            let record = Record::Batch {
                seqno: u64::from(n) + 1,
                batch: &batch,
            };
            let lsn = wal.append(&[record], OutcomeRoom::Leave).expect("room").lsn;
            wal.sync_to(lsn).expect("no fault");
        }
        if run == 0 {
            wal.close().expect("no fault");
        }
        let (_, end) = records(&env, 1).expect("an intact log");
        (first, prev) = (end.max_segment_id_seen + 1, end.log_end());
    }
    for id in 1..first {
        let path = Path::new(DIR).join(segment_name(id));
        files.extend(env.read(&path).expect("a segment"));
    }
    let mut payload = AlignedBuf::new();
    let xid = &[7; 140][..];
    for record in [
        Record::Prepare { xid, batch: b"b" },
        Record::Commit {
            xid,
            seqno: 300,
            binlog: Some(firn::wal::BinlogPosition {
                name: b"bin.000001",
                pos: 4711,
            }),
        },
        Record::Rollback { xid },
        Record::RunIngest {
            seqno: 1,
            files: vec![1, 2, 1 << 40].into(),
            info: b"i",
        },
        Record::CounterMax {
            counter: 9,
            value: 1 << 60,
        },
        Record::SchemaChange {
            seqno: 2,
            description: b"CREATE",
            batch: b"b",
        },
        Record::Gtid {
            seqno: 300,
            gtid: Gtid {
                domain: 1,
                server: 1 << 31,
                sequence: 1 << 40,
            },
        },
        Record::BlobSpan {
            file: 9,
            offset: 64,
            bytes: b"BLB1",
        },
        Record::Epoch {
            epoch: 1,
            after: 1 << 33,
        },
        Record::CounterSet {
            counter: 9,
            generation: 2,
            value: 1 << 20,
        },
        Record::ServerRun {
            run: ServerRunName::Unknown,
        },
        Record::ServerRun {
            run: ServerRunName::NoBinlog,
        },
        Record::ServerRun {
            run: ServerRunName::Binlog {
                path: b"/var/log/bin.000001",
                created: 1 << 31,
                server_id: 7,
            },
        },
    ] {
        record.encode(&mut payload);
    }
    let mut framed = vec![1];
    framed.extend_from_slice(payload.as_slice());
    let forged = [2u8].into_iter().chain((0..48).map(|n| n % 5)).collect();
    vec![files, framed, forged]
}

fn place(env: &MemEnv, id: u64, content: Vec<u8>) {
    env.place(&Path::new(DIR).join(segment_name(id)), content);
}

/// Places one segment with one group, whose payload is given.
fn framed(env: &MemEnv, payload: &[u8]) {
    let header = SegmentHeader {
        id: 1,
        incarnation: 1,
        base: LogEnd::default(),
        size: SEGMENT as u64,
        unit: BLOCK,
    };
    let group = GroupHeader {
        number: 1,
        known_synced: 0,
        segment_first: 1,
        previous_segment: 0,
        payload_len: payload.len() as u32,
        records: count(payload),
        previous_records: 0,
    };
    let mut content = header.encode().as_slice().to_vec();
    content.extend(sealed(group, payload, 1, FIRST_GROUP, BLOCK));
    place(env, 1, content);
}

fn count(mut payload: &[u8]) -> u32 {
    let mut count = 0;
    while !payload.is_empty() && Record::decode(&mut payload, "f", 0).is_ok() {
        count += 1;
    }
    count
}

fn sealed(group: GroupHeader, payload: &[u8], id: u64, offset: u64, unit: usize) -> Vec<u8> {
    let mut bytes = AlignedBuf::new();
    bytes.extend_from_slice(&[0; GROUP_HEADER]);
    bytes.extend_from_slice(payload);
    group.seal(&mut bytes, id, offset, unit);
    bytes.as_slice().to_vec()
}

/// Places segments with empty groups; the numbers in their headers come from the input.
fn forged(env: &MemEnv, data: &[u8]) {
    let mut numbers = data.iter().map(|&byte| match byte {
        // Small bytes are small numbers, the largest bytes numbers near `u64::MAX`.
        0..=250 => u64::from(byte),
        _ => u64::MAX - u64::from(255 - byte),
    });
    for id in 1..=4 {
        let mut next = || numbers.next().unwrap_or(0);
        let unit = if id % 2 == 0 { SECTOR } else { BLOCK };
        let header = SegmentHeader {
            id,
            incarnation: next(),
            base: LogEnd {
                segment: next(),
                group: next(),
            },
            size: next(),
            unit,
        };
        let mut content = header.encode().as_slice().to_vec();
        for _ in 0..2 {
            let group = GroupHeader {
                number: next(),
                known_synced: next(),
                segment_first: next(),
                previous_segment: next(),
                payload_len: 0,
                records: 0,
                previous_records: next() as u16,
            };
            let offset = content.len() as u64;
            content.extend(sealed(group, &[], id, offset, unit));
        }
        place(env, id, content);
    }
}

fn records(env: &MemEnv, first: u64) -> Result<(Vec<String>, ReplayEnd)> {
    let mut found = Vec::new();
    let end = replay(env, Path::new(DIR), first, &mut |segment, record| {
        found.push(format!("{segment} {record:?}"));
        Ok(())
    })?;
    Ok((found, end))
}

fn open(env: &MemEnv, first: u64, prev: LogEnd) -> Result<Arc<Wal>> {
    let opts = WalOptions {
        segment_size: SEGMENT as u64,
        background: false,
        ..WalOptions::default()
    };
    Wal::create(
        Arc::new(env.clone()),
        Path::new(DIR),
        opts,
        Arc::new(Health::new()),
        Arc::new(Silent),
        first,
        prev,
    )
}

/// Appends a record to a replayed log, and checks that a second replay returns the same records and
/// then the new one.
fn goes_on(env: &MemEnv, first: u64, mut expected: Vec<String>, end: ReplayEnd) {
    let wal = open(env, end.max_segment_id_seen + 1, end.log_end()).expect("a new segment");
    let record = Record::CounterMax {
        counter: 1,
        value: 2,
    };
    expected.push(format!("{} {record:?}", wal.current_segment()));
    let lsn = wal.append(&[record], OutcomeRoom::Leave).expect("room").lsn;
    wal.sync_to(lsn).expect("no fault");
    let (found, _) = records(&env.crash(0), first).expect("an intact log");
    assert_eq!(found, expected);
}
