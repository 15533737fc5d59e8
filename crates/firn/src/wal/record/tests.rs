use super::*;
use crate::base::ErrorKind;

fn samples() -> Vec<Record<'static>> {
    vec![
        Record::Batch {
            seqno: 7,
            batch: b"changes",
        },
        Record::Batch {
            seqno: u64::MAX,
            batch: b"",
        },
        Record::Prepare {
            xid: &[9; 140],
            batch: b"prepared",
        },
        Record::Commit {
            xid: b"x",
            seqno: 300,
            binlog: None,
        },
        Record::Commit {
            xid: b"",
            seqno: 301,
            binlog: Some(BinlogPosition {
                name: b"bin.000001",
                pos: 1 << 40,
            }),
        },
        Record::Rollback { xid: b"gone" },
        Record::RunIngest {
            seqno: 5,
            files: Cow::Borrowed(&[1, 1 << 33, u64::MAX]),
            info: b"level 6",
        },
        Record::PrepareRun {
            xid: b"large",
            files: Cow::Borrowed(&[77, 0]),
            info: b"two files",
        },
        Record::CounterMax {
            counter: 1 << 50,
            value: u64::MAX,
        },
        Record::CounterSet {
            counter: 1 << 33,
            generation: 1,
            value: 0,
        },
        Record::SchemaChange {
            seqno: 6,
            description: b"CREATE TABLE t",
            batch: b"catalog",
        },
        Record::Load {
            files: Cow::Borrowed(&[3, 900]),
            info: b"two more",
        },
        Record::Clock {
            wall_ms: 1 << 42,
            binlog: None,
        },
        Record::Clock {
            wall_ms: 7,
            binlog: Some(BinlogPosition {
                name: b"bin.000002",
                pos: 4,
            }),
        },
        Record::Gtid {
            seqno: 300,
            gtid: Gtid {
                domain: u32::MAX,
                server: 1,
                sequence: u64::MAX,
            },
        },
        Record::BlobSpan {
            file: 1 << 40,
            offset: 64,
            bytes: b"BLB1",
        },
        Record::Epoch {
            epoch: 3,
            after: 1 << 40,
        },
        Record::ServerRun {
            run: ServerRunName::Unknown,
        },
        Record::ServerRun {
            run: ServerRunName::NoBinlog,
        },
        Record::ServerRun {
            run: ServerRunName::Binlog {
                path: b"./bin.000002",
                created: u32::MAX,
                server_id: 1,
            },
        },
    ]
}

fn decode<'a>(input: &mut &'a [u8]) -> Result<Record<'a>> {
    Record::decode(input, "000001.wal", 4096)
}

fn encoded(records: &[Record<'_>]) -> AlignedBuf {
    let mut out = AlignedBuf::new();
    for record in records {
        let before = out.len();
        record.encode(&mut out);
        assert_eq!(out.len() - before, record.encoded_len());
    }
    out
}

#[test]
fn every_kind_comes_back() {
    let bytes = encoded(&samples());
    let mut input = bytes.as_slice();
    for sample in samples() {
        assert_eq!(decode(&mut input).unwrap(), sample);
    }
    assert!(input.is_empty());
}

#[test]
fn an_unknown_kind_is_unsupported() {
    for kind in [0, 200, 255] {
        let error = decode(&mut &[kind, 0][..]).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unsupported);
    }
}

#[test]
fn a_cut_record_is_corruption() {
    for sample in samples() {
        let bytes = encoded(std::slice::from_ref(&sample));
        for len in 0..bytes.len() {
            let error = decode(&mut &bytes.as_slice()[..len]).unwrap_err();
            assert!(error.is_corruption(), "{sample:?} cut to {len}");
        }
    }
}

#[test]
fn a_body_with_too_much_or_a_wild_count_is_corruption() {
    let rollback_with_rest = [ROLLBACK, 3, 1, b'x', b'y'];
    let wild_count = [RUN_INGEST, 6, 1, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let wild_domain = [GTID, 8, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1];
    for bytes in [&rollback_with_rest[..], &wild_count[..], &wild_domain[..]] {
        assert!(decode(&mut &bytes[..]).unwrap_err().is_corruption());
    }
}

#[test]
fn records_have_the_bytes_of_the_page() {
    let gtid = Gtid {
        domain: 1,
        server: 2,
        sequence: 300,
    };
    let binlog = Some(BinlogPosition {
        name: b"b.1",
        pos: 5,
    });
    let run = |run| Record::ServerRun { run };
    let records: [(Record<'_>, &[u8]); 11] = [
        (
            Record::Load {
                files: Cow::Borrowed(&[3, 900]),
                info: b"ab",
            },
            b"\x09\x06\x02\x03\x84\x07ab",
        ),
        (
            Record::Clock {
                wall_ms: 300,
                binlog: None,
            },
            &[10, 2, 0xac, 2],
        ),
        (
            Record::Clock {
                wall_ms: 300,
                binlog,
            },
            b"\x0a\x07\xac\x02\x03b.1\x05",
        ),
        (Record::Gtid { seqno: 7, gtid }, &[11, 5, 7, 1, 2, 0xac, 2]),
        (
            Record::BlobSpan {
                file: 7,
                offset: 64,
                bytes: b"xy",
            },
            b"\x0c\x04\x07\x40xy",
        ),
        (
            Record::Epoch {
                epoch: 2,
                after: 300,
            },
            &[13, 3, 2, 0xac, 2],
        ),
        (
            Record::CounterSet {
                counter: 5,
                generation: 1,
                value: 300,
            },
            &[14, 4, 5, 1, 0xac, 2],
        ),
        (run(ServerRunName::Unknown), &[15, 0]),
        (run(ServerRunName::NoBinlog), &[15, 1, 0]),
        (
            run(ServerRunName::Binlog {
                path: b"p",
                created: 1,
                server_id: 300,
            }),
            &[15, 5, 1, b'p', 1, 0xac, 2],
        ),
        (
            Record::CounterMax {
                counter: 5,
                value: 300,
            },
            &[6, 3, 5, 0xac, 2],
        ),
    ];
    for (record, bytes) in records {
        let mut out = AlignedBuf::new();
        record.encode(&mut out);
        assert_eq!(out.as_slice(), bytes, "{record:?}");
        let read = Record::decode(&mut &bytes[..], "f", 0).unwrap();
        assert_eq!(read, record);
    }
}
