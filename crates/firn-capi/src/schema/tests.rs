use super::*;

extern "C" fn upper(
    _: *const c_void,
    _: u32,
    filled: bool,
    text: *const u8,
    len: usize,
    weights: *mut u8,
    capacity: usize,
    weighed: *mut usize,
) -> usize {
    // Asks once for more room, as a collation with expansions does.
    if capacity < 5 * len + 20 {
        return 5 * len + 20;
    }
    for i in 0..len {
        // SAFETY: `text` has `len` bytes, and `weights` has room for more.
        unsafe { *weights.add(i) = (*text.add(i)).to_ascii_uppercase() };
    }
    // Shows in the first weight whether the text is filled.
    if filled && len > 0 {
        // SAFETY: as above.
        unsafe { *weights = b'!' };
    }
    // SAFETY: the caller passes a pointer to a number.
    unsafe { *weighed = len };
    len
}

extern "C" fn prefix_len(_: *const c_void, _: *const u8, len: usize, chars: usize) -> usize {
    chars.min(len)
}

extern "C" fn chars(_: *const c_void, _: *const u8, len: usize) -> usize {
    len
}

static COLLATOR: firn_collator = firn_collator {
    sort_key: upper,
    prefix_len,
    chars,
};

fn a_collation() -> firn_collation {
    let mut levels = [firn_level::default(); FIRN_LEVELS_MAX];
    levels[0].space = 0x20;
    firn_collation {
        id: 8,
        name: c"latin1_swedish_ci".as_ptr(),
        handle: std::ptr::null(),
        levels,
        level_count: 1,
        weight_len: 1,
        form: FIRN_TEXT_LOST,
        simple_len: 0,
        simple: [0; 256],
        char_filled: false,
        pad_len: 1,
        pad: [b' ', 0, 0, 0],
    }
}

fn a_column(kind: u32, offset: u32, len: u32) -> firn_column {
    firn_column {
        name: c"c".as_ptr(),
        kind,
        type_code: 1,
        offset,
        len,
        len_bytes: 1,
        chars: len,
        interpretation: 0,
        null_offset: 0,
        null_mask: 2,
        stored: true,
        pad_len: 1,
        pad: [b' ', 0, 0, 0],
    }
}

fn text_part(collation: &firn_collation) -> firn_key_part {
    firn_key_part {
        column: 1,
        kind: FIRN_PART_TEXT,
        prefix: 3,
        image_len: 3,
        desc: true,
        collation,
    }
}

fn convert(columns: &[firn_column], parts: &[firn_key_part]) -> Result<TableSchema> {
    let index = firn_index {
        name: c"i".as_ptr(),
        parts: parts.as_ptr(),
        part_count: parts.len() as u32,
        unique: true,
    };
    let def = firn_table_def {
        record_len: 20,
        null_bytes: 1,
        columns: columns.as_ptr(),
        column_count: columns.len() as u32,
        indexes: &raw const index,
        index_count: 1,
        primary: FIRN_NONE,
        auto_increment: FIRN_NONE,
        optimistic: false,
        collator: &raw const COLLATOR,
        default_record: std::ptr::null(),
    };
    // SAFETY: all pointers are to locals or constants, as described.
    unsafe { table_schema(&raw const def) }
}

#[test]
fn definitions_convert() {
    let collation = a_collation();
    let columns = [
        a_column(FIRN_COLUMN_FIXED, 1, 4),
        a_column(FIRN_COLUMN_CHAR, 5, 5),
        a_column(FIRN_COLUMN_BLOB, 10, 0),
    ];
    let schema = convert(&columns, &[text_part(&collation)]).unwrap();
    assert_eq!(schema.columns.len(), 3);
    assert_eq!((schema.primary, schema.auto_increment), (None, None));
    let part = &schema.indexes[0].parts[0];
    assert_eq!((part.column, part.prefix, part.desc), (1, Some(3), true));
    let codec = &schema.index_codecs().unwrap()[0];
    let mut record = [0u8; 20];
    record[5..10].copy_from_slice(b"abcde");
    let mut key = Vec::new();
    // SAFETY: the record is long enough; the blob is not part of the key.
    unsafe { codec.encode_record(&record, &mut key) }.unwrap();
    let expected: Vec<u8> = b"\x01ABC \x02".iter().map(|byte| !byte).collect();
    assert_eq!(key, expected);
}

#[test]
fn bad_definitions_are_errors() {
    let collation = a_collation();
    let good = a_column(FIRN_COLUMN_CHAR, 5, 5);
    let refused = |column: firn_column, part: firn_key_part| {
        convert(&[a_column(FIRN_COLUMN_FIXED, 1, 4), column], &[part]).is_err()
    };
    let part = text_part(&collation);
    assert!(!refused(good, part));
    assert!(refused(firn_column { kind: 9, ..good }, part));
    assert!(refused(
        firn_column {
            null_mask: 3,
            ..good
        },
        part
    ));
    assert!(refused(firn_column { pad_len: 3, ..good }, part));
    assert!(refused(
        firn_column {
            name: std::ptr::null(),
            ..good
        },
        part
    ));
    assert!(refused(firn_column { offset: 18, ..good }, part));
    assert!(refused(good, firn_key_part { kind: 9, ..part }));
    assert!(refused(
        good,
        firn_key_part {
            collation: std::ptr::null(),
            ..part
        }
    ));
    let wide = firn_collation {
        level_count: 7,
        ..collation
    };
    assert!(refused(good, text_part(&wide)));
    // SAFETY: NULL is allowed; the call reports it as an error.
    assert!(unsafe { table_schema(std::ptr::null()) }.is_err());
}

#[test]
fn single_keys_are_written() {
    let collation = a_collation();
    let mut out = [0u8; 16];
    let mut key = |text: &[u8], capacity: usize| {
        // SAFETY: all pointers are to locals or constants, as described.
        let len = unsafe {
            firn_text_key(
                &raw const collation,
                &raw const COLLATOR,
                text.as_ptr(),
                text.len(),
                0,
                out.as_mut_ptr(),
                capacity,
            )
        };
        out[..len.min(capacity)].to_vec()
    };
    assert_eq!(key(b"a b", 16), b"A \x03B \x02");
    assert_eq!(key(b"a\t ", 16), b"A\t \x02");
    assert_eq!(key(b"", 16), b" \x02");
}

#[test]
fn the_callback_learns_which_text_is_filled() {
    let key = |collation: &firn_collation, chars: u32| {
        let mut out = vec![0u8; 32];
        // SAFETY: the pointers are valid during the call, with as many bytes as they say.
        let len = unsafe {
            firn_text_key(
                collation,
                &raw const COLLATOR,
                b"ab".as_ptr(),
                2,
                chars,
                out.as_mut_ptr(),
                out.len(),
            )
        };
        out.truncate(len);
        out
    };
    let mut collation = a_collation();
    assert_eq!(key(&collation, 0), b"AB \x02");
    assert_eq!(key(&collation, 4), b"AB \x02");
    collation.char_filled = true;
    assert_eq!(key(&collation, 0), b"AB \x02");
    assert_eq!(key(&collation, 4), b"!B  \0");
}
