use super::*;
use crate::base::ErrorKind;
use crate::base::key::index_prefix;
use crate::catalog::{CATALOG_INDEX, CatalogState};

fn rest(key: &[u8]) -> &[u8] {
    &key[index_prefix(CATALOG_INDEX).len()..]
}

fn known(key: &[u8], value: &[u8]) -> Result<CatalogState> {
    let mut known = CatalogState::default();
    known.add(rest(key), 7, value).map(|()| known)
}

#[test]
fn objects_and_partitions_have_the_bytes_of_the_page() {
    let key = object_key(ServerObjectKind::View, "d/v");
    assert_eq!(key, b"\0\0\0\0\x03\x04d/v");
    let read = known(&key, b"\x01image").unwrap();
    let image = &read.objects[&(ServerObjectKind::View, "d/v".to_owned())];
    assert_eq!(&**image, b"image");
    let key = partitioning_key("d/t");
    assert_eq!(key, b"\0\0\0\0\x04d/t");
    let read = known(&key, b"\x01").unwrap();
    assert_eq!(&*read.partitionings["d/t"], b"");
}

#[test]
fn every_kind_comes_back_and_others_are_refused() {
    for byte in 0..=255 {
        match ServerObjectKind::from_u8(byte) {
            Ok(kind) => assert_eq!(kind as u8, byte),
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Unsupported);
                assert!(!(1..=6).contains(&byte));
            }
        }
    }
    let refused = |key: &[u8], value: &[u8]| known(key, value).unwrap_err();
    let unknown = refused(b"\0\0\0\0\x03\x07x", b"\x01");
    assert_eq!(*unknown.kind(), ErrorKind::Unsupported);
    for key in [&b"\0\0\0\0\x03\x01x"[..], b"\0\0\0\0\x04x"] {
        assert_eq!(*refused(key, b"\x02").kind(), ErrorKind::Unsupported);
        assert!(refused(key, b"").is_corruption());
    }
    for key in [
        &b"\0\0\0\0\x03"[..],
        b"\0\0\0\0\x03\x01\xff",
        b"\0\0\0\0\x04\xff",
    ] {
        assert!(refused(key, b"\x01").is_corruption());
    }
}
