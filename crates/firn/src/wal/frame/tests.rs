use super::*;

const SEGMENT: SegmentHeader = SegmentHeader {
    id: 9,
    incarnation: 7,
    base: LogEnd {
        segment: 5,
        group: 300,
    },
    size: 1 << 20,
};

fn group(payload: &[u8]) -> (GroupHeader, AlignedBuf) {
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
    header.seal(&mut bytes, 9, 8192);
    (header, bytes)
}

#[test]
fn a_segment_header_comes_back() {
    let block = SEGMENT.encode();
    let decode = |id| SegmentHeader::decode(block.as_slice(), id, "f").unwrap();
    assert_eq!(decode(9), Some(SEGMENT));
    assert_eq!(decode(10), None, "the header of another segment");
}

#[test]
fn a_group_comes_back_at_its_place_only() {
    for len in [0, 1, BLOCK - GROUP_HEADER, BLOCK, 3 * BLOCK + 17] {
        let (header, bytes) = group(&vec![0xa5; len]);
        let bytes = bytes.as_slice();
        assert_eq!(GroupHeader::peek_len(bytes, 9), Some(bytes.len() as u64));
        let decode = |id, offset| GroupHeader::decode(bytes, id, offset, "f").unwrap();
        assert_eq!(decode(9, 8192), Some(header));
        assert_eq!(decode(9, 4096), None);
        assert_eq!(decode(8, 8192), None);
        assert_eq!(GroupHeader::peek_len(bytes, 8), None);
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let (_, group) = group(b"records");
    let header = SEGMENT.encode();
    for byte in (0..200).chain([BLOCK - 1]) {
        for bit in 0..8 {
            let mut bytes = group.as_slice().to_vec();
            bytes[byte] ^= 1 << bit;
            assert_eq!(GroupHeader::decode(&bytes, 9, 8192, "f").unwrap(), None);
            let mut bytes = header.as_slice().to_vec();
            bytes[byte] ^= 1 << bit;
            assert_eq!(SegmentHeader::decode(&bytes, 9, "f").unwrap(), None);
        }
    }
}

#[test]
fn a_newer_version_is_refused() {
    let mut bytes = SEGMENT.encode().as_slice().to_vec();
    bytes[12] += 1;
    seal(&mut bytes, 9, 0);
    let error = SegmentHeader::decode(&bytes, 9, "f").unwrap_err();
    assert_eq!(error.kind(), &crate::base::ErrorKind::Unsupported);
}
