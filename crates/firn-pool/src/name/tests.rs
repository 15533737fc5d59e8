use super::*;

#[test]
fn every_part_and_the_kind_change_the_name() {
    let name = Name::of_block(1, 2, 3);
    assert_eq!(name, Name::of_block(1, 2, 3));
    let others = [
        Name::of_block(2, 2, 3),
        Name::of_block(1, 3, 3),
        Name::of_block(1, 2, 4),
        Name::of_blob_chunk(1, 2, 3),
        Name::of_news(1, 2, 3),
    ];
    for other in others {
        assert_ne!(name, other);
    }
}

/// A restored copy writes other bytes under the id of a file that exists elsewhere.
#[test]
fn one_file_id_with_two_checksums_has_two_names() {
    assert_ne!(Name::of_block(42, 0xa, 4096), Name::of_block(42, 0xb, 4096));
}

/// Names are shared by servers of all builds: they must never change.
#[test]
fn a_name_is_a_fixed_function_of_its_parts() {
    let mut text = Vec::new();
    Name::of_block(1, 2, 3).write_base64(&mut text);
    assert_eq!(String::from_utf8(text).unwrap(), "H88NxfkhbwIXAXqD4mrW0A==");
}

#[test]
fn base64_is_the_standard_one() {
    let mut text = Vec::new();
    Name(*b"Many hands make ").write_base64(&mut text);
    assert_eq!(text, b"TWFueSBoYW5kcyBtYWtlIA==");
}
