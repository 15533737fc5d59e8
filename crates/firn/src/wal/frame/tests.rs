use super::*;

const SEGMENT: SegmentHeader = SegmentHeader {
    id: 9,
    incarnation: 7,
    base: LogEnd {
        segment: 5,
        group: 300,
    },
    size: 1 << 20,
    unit: BLOCK,
};

fn group(payload: &[u8], unit: usize) -> (GroupHeader, AlignedBuf) {
    let header = GroupHeader {
        number: 301,
        known_synced: 300,
        segment_first: 290,
        previous_segment: 8,
        payload_len: payload.len() as u32,
        records: 3,
        previous_records: 7,
    };
    let mut bytes = AlignedBuf::new();
    bytes.extend_from_slice(&[0; GROUP_HEADER]);
    bytes.extend_from_slice(payload);
    header.seal(&mut bytes, 9, 8192, unit);
    (header, bytes)
}

#[test]
fn a_segment_header_comes_back() {
    for unit in [SECTOR, 2 * SECTOR, BLOCK] {
        let header = SegmentHeader { unit, ..SEGMENT };
        let block = header.encode();
        let decode = |id| SegmentHeader::decode(block.as_slice(), id, "f").unwrap();
        assert_eq!(decode(9), Some(header));
        assert_eq!(decode(10), None, "the header of another segment");
    }
}

/// An engine that knows only format version 1 reads segments whose groups fill whole blocks, and
/// refuses segments with smaller units.
#[test]
fn only_segments_of_smaller_units_have_the_second_version() {
    for (unit, version, stored) in [(BLOCK, 1, [0, 0]), (SECTOR, 2, [0, 2])] {
        let block = SegmentHeader { unit, ..SEGMENT }.encode();
        assert_eq!(block.as_slice()[12], version);
        assert_eq!(block.as_slice()[56..58], stored);
    }
}

#[test]
fn units_that_make_no_sense_are_refused() {
    for unit in [0u64, 1, 256, 513, 768, 4096, 8192, u64::MAX] {
        let mut header = SEGMENT;
        header.unit = SECTOR;
        let mut bytes = header.encode().as_slice().to_vec();
        bytes[56..64].copy_from_slice(&unit.to_le_bytes());
        seal(&mut bytes, 9, 0);
        let error = SegmentHeader::decode(&bytes, 9, "f").unwrap_err();
        assert_eq!(error.kind(), &crate::base::ErrorKind::Unsupported, "{unit}");
    }
}

#[test]
fn a_group_comes_back_at_its_place_only() {
    for len in [0, 1, SECTOR, BLOCK - GROUP_HEADER, BLOCK, 3 * BLOCK + 17] {
        for unit in [SECTOR, BLOCK] {
            let (header, bytes) = group(&vec![0xa5; len], unit);
            let bytes = bytes.as_slice();
            assert_eq!(bytes.len(), (GROUP_HEADER + len).next_multiple_of(unit));
            let peek = |id| GroupHeader::peek_len(bytes, id, unit);
            assert_eq!((peek(9), peek(8)), (Some(bytes.len() as u64), None));
            let decode = |id, offset| GroupHeader::decode(bytes, id, offset, unit, "f").unwrap();
            assert_eq!(decode(9, 8192), Some(header));
            assert_eq!(decode(9, 4096), None);
            assert_eq!(decode(8, 8192), None);
        }
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let (_, group) = group(b"records", BLOCK);
    let header = SEGMENT.encode();
    for byte in (0..200).chain([BLOCK - 1]) {
        for bit in 0..8 {
            let mut bytes = group.as_slice().to_vec();
            bytes[byte] ^= 1 << bit;
            assert_eq!(
                GroupHeader::decode(&bytes, 9, 8192, BLOCK, "f").unwrap(),
                None
            );
            let mut bytes = header.as_slice().to_vec();
            bytes[byte] ^= 1 << bit;
            assert_eq!(SegmentHeader::decode(&bytes, 9, "f").unwrap(), None);
        }
    }
}

#[test]
fn a_newer_version_is_refused() {
    let mut bytes = SEGMENT.encode().as_slice().to_vec();
    bytes[12] += 2;
    seal(&mut bytes, 9, 0);
    let error = SegmentHeader::decode(&bytes, 9, "f").unwrap_err();
    assert_eq!(error.kind(), &crate::base::ErrorKind::Unsupported);
}

#[test]
fn an_encrypted_group_is_refused_as_such_wherever_it_ends() {
    use crate::base::encryption_envelope::{EncryptedUnit, Envelope};
    for len in [0, 1, 400, BLOCK] {
        let records = vec![7; len];
        let sealed = EncryptedUnit {
            envelope: Envelope {
                key: 1,
                version: 2,
                nonce: [3; 12],
            },
            ciphertext: &records,
            tag: &[4; 16],
        };
        let mut payload = Vec::new();
        sealed.put(&mut payload);
        for unit in [SECTOR, BLOCK] {
            let (_, bytes) = group(&payload, unit);
            let mut bytes = bytes.as_slice().to_vec();
            bytes[12] = ENCRYPTED_VERSION as u8;
            seal(&mut bytes, 9, 8192);
            let peeked = GroupHeader::peek_len(&bytes, 9, unit);
            assert_eq!(peeked, Some(bytes.len() as u64), "no torn tail");
            let error = GroupHeader::decode(&bytes, 9, 8192, unit, "f").unwrap_err();
            assert_eq!(error.kind(), &crate::base::ErrorKind::Unsupported);
            assert!(error.to_string().contains("is encrypted"), "{error}");
        }
    }
}
