use super::*;

#[test]
fn newer_sorts_first() {
    let old = InternalKey::new(b"k", 5, Kind::Put);
    let new = InternalKey::new(b"k", 6, Kind::Delete);
    assert!(new < old);
    assert!(InternalKey::new(b"j", 1, Kind::Put) < new);
}

#[test]
fn trailer_round_trips() {
    for kind in [Kind::Delete, Kind::Put, Kind::PutBlobs, Kind::RangeDelete] {
        assert_eq!(
            unpack_trailer(pack_trailer(SEQNO_MAX, kind)).unwrap(),
            (SEQNO_MAX, kind)
        );
    }
    assert!(unpack_trailer(4).is_err());
}
