use super::kit::*;
use crate::keycode::*;

fn latin() -> Rules {
    Rules {
        weight_len: 1,
        levels: 1,
        no_pad: false,
        char_filled: false,
        form: TextForm::Lost,
        simple: true,
    }
}

fn key_of(rules: &Rules, text: &[u8]) -> Vec<u8> {
    let kind = PartKind::Text(collation(rules));
    encode(
        &part(kind, PartSource::VarChar { len_bytes: 1 }, 40),
        Some(text),
    )
}

#[test]
fn the_bytes_are_as_documented() {
    assert_eq!(key_of(&latin(), b"ab"), b"AB \x02");
    assert_eq!(key_of(&latin(), b"ab  "), b"AB \x02");
    assert_eq!(key_of(&latin(), b"a b"), b"A \x03B \x02");
    assert_eq!(key_of(&latin(), b"a \t"), b"A \x01\t \x02");
    assert_eq!(key_of(&latin(), b""), b" \x02");
    let no_pad = Rules {
        no_pad: true,
        ..latin()
    };
    assert_eq!(key_of(&no_pad, b"a \0\x01"), b"A \x01\x01\x01\x02\0");
    let wide = Rules {
        weight_len: 2,
        simple: false,
        ..latin()
    };
    // Here the byte 0x80 has the weight 0x4000, 0xe9 has the weight 0xe900, and 0xff begins no
    // character.
    assert_eq!(key_of(&wide, b"a"), b"A \x02");
    assert_eq!(key_of(&wide, b"\x80"), b"\xbf\x80 \x02");
    assert_eq!(key_of(&wide, b"\xe9"), b"\xed\x7b\x80 \x02");
    assert_eq!(key_of(&wide, b"\xff"), b"\xff\xff\x00\xff \x02");
}

#[test]
fn the_shortcut_changes_no_bytes() {
    for weight_len in 1..=3 {
        let slow = Rules {
            weight_len,
            simple: false,
            ..latin()
        };
        let quick = Rules {
            weight_len,
            simple: true,
            ..latin()
        };
        for text in [&b"a B"[..], b"", b" x\t ", b"\x01\x02", b"z~", b"\xe9"] {
            assert_eq!(key_of(&slow, text), key_of(&quick, text), "{text:x?}");
        }
    }
}

#[test]
fn a_contradicting_description_is_refused() {
    let good = collation(&latin()).spec().clone();
    let refused = |change: fn(&mut CollationSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        Collation::new(spec, std::sync::Arc::new(Folding { weight_len: 1 })).is_err()
    };
    assert!(!refused(|_| {}));
    assert!(refused(|spec| spec.weight_len = 4));
    assert!(refused(|spec| spec.levels.clear()));
    assert!(refused(|spec| spec.levels.push(spec.levels[0])));
    assert!(refused(|spec| spec.levels[0].space = 256));
    assert!(refused(|spec| spec.weight_len = 2));
    assert!(refused(|spec| spec.simple[0x20] = 0x21));
    assert!(refused(|spec| spec.form = TextForm::Utf8));
}

#[test]
fn utf8_comes_back_from_code_points() {
    let kind = PartKind::Text(code_points());
    let source = PartSource::VarChar { len_bytes: 1 };
    let codec = KeyCodec::new(60, vec![part(kind, source, 50)]).unwrap();
    let index = IndexCodec::secondary(60, codec, None);
    let plan = index.plan(None);
    let texts: [&[u8]; 7] = [
        b"",
        b"plain  ",
        " a\u{7f}\u{80}\u{7ff}\u{800}".as_bytes(),
        "\u{6d7f}\u{6d80}\u{ffff}\u{10000}\u{10ffff}".as_bytes(),
        b"bad \xff\xc3 end",
        b"\t \x01",
        b"\xed\xa0",
    ];
    for text in texts {
        let mut record = vec![0; 60];
        record[1] = text.len() as u8;
        record[2..2 + text.len()].copy_from_slice(text);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        // SAFETY: there are no blob columns, and the record is long enough.
        unsafe {
            index.encode_record(&record, &mut key).unwrap();
            index.encode_value(&record, &mut value).unwrap();
        }
        let mut decoded = vec![0xaa; 60];
        plan.decode(&key, &value, &mut decoded).unwrap();
        assert_eq!(
            decoded[1..2 + text.len()],
            record[1..2 + text.len()],
            "{text:x?}"
        );
    }
}

/// A collator whose text ends at the first NUL, unless it is filled.
#[derive(Debug)]
struct EndsAtNul;

impl Collator for EndsAtNul {
    fn sort_key(&self, _level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        weights.extend(text.iter().take_while(|&&byte| byte != 0));
        text.len()
    }

    fn filled_sort_key(&self, _level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        weights.extend_from_slice(text);
        text.len()
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn chars(&self, text: &[u8]) -> usize {
        text.len()
    }
}

#[test]
fn filled_text_has_weights_of_its_own() {
    let mut spec = collation(&latin()).spec().clone();
    (spec.simple, spec.char_filled) = (Vec::new(), true);
    spec.levels[0].no_pad = true;
    let kind = || {
        let collation = Collation::new(spec.clone(), std::sync::Arc::new(EndsAtNul));
        PartKind::Text(std::sync::Arc::new(collation.unwrap()))
    };
    let var = part(kind(), PartSource::VarChar { len_bytes: 1 }, 4);
    assert_eq!(encode(&var, Some(b"a\0b")), b"a\0");
    let char = part(kind(), PartSource::Char { chars: 4 }, 4);
    assert_eq!(encode(&char, Some(b"a\0b ")), b"a\x01\x01b \0");
}

/// Where a space weighs 0 and no character does, a text is smaller than all that begin with it: the
/// description of collations that cut the spaces off before they weigh.
#[test]
fn a_space_of_weight_0_sorts_the_end_first() {
    let mut spec = collation(&latin()).spec().clone();
    spec.simple = Vec::new();
    spec.levels[0].space = 0;
    let collation = Collation::new(spec, std::sync::Arc::new(EndsAtNul)).unwrap();
    let kind = PartKind::Text(std::sync::Arc::new(collation));
    let part = part(kind, PartSource::VarChar { len_bytes: 1 }, 40);
    let keys = [&b""[..], b"\x01", b"a", b"a\x01", b"a ", b"ab"].map(|t| encode(&part, Some(t)));
    assert_eq!(keys[2], b"a\0\x02");
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert!(
        keys.iter()
            .all(|a| keys.iter().all(|b| a == b || !b.starts_with(a)))
    );
}
