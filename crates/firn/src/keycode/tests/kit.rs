//! Collators, collations and key parts for tests.

use crate::keycode::*;
use rand::{Rng, rngs::StdRng};
use std::cmp::Ordering;
use std::sync::Arc;

/// A collator that ignores the case of ASCII letters; the weight of any other byte is its value. A
/// weight has `weight_len` bytes. The byte `0xff` begins no character, and `~` has no weight, like
/// characters that a collation ignores.
#[derive(Debug)]
pub struct Folding {
    pub weight_len: usize,
}

impl Folding {
    pub fn weight(&self, byte: u8) -> Option<u32> {
        match byte {
            b'~' if self.weight_len > 1 => None,
            // Give these bytes large weights, so that units of every length occur.
            0x80..0xa0 if self.weight_len > 1 => Some(u32::from(byte) << 7),
            0xa0.. if self.weight_len > 1 => Some(u32::from(byte) << 8),
            _ => Some(u32::from(byte.to_ascii_uppercase())),
        }
    }
}

impl Collator for Folding {
    fn sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        for (i, &byte) in text.iter().enumerate() {
            if byte == 0xff && self.weight_len > 1 {
                return i;
            }
            let weight = match level {
                // The second level distinguishes upper and lower case.
                1 => self
                    .weight(byte)
                    .map(|_| 2 + u32::from(byte.is_ascii_uppercase())),
                _ => self.weight(byte),
            };
            if let Some(weight) = weight {
                weights.extend_from_slice(&weight.to_be_bytes()[4 - self.weight_len..]);
            }
        }
        text.len()
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn chars(&self, text: &[u8]) -> usize {
        text.len()
    }
}

pub struct Rules {
    pub weight_len: u8,
    pub levels: u32,
    pub no_pad: bool,
    pub char_filled: bool,
    pub form: TextForm,
    pub simple: bool,
}

pub fn collation(rules: &Rules) -> Arc<Collation> {
    let collator = Folding {
        weight_len: usize::from(rules.weight_len),
    };
    let level = |number| CollationLevel {
        number,
        space: if number == 0 { 0x20 } else { 2 },
        no_pad: number == 0 && rules.no_pad,
    };
    let simple_len = match (rules.simple, rules.weight_len) {
        (false, _) => 0,
        (true, 1) => 256u32,
        // End the table before `~`, which has no weight.
        (true, _) => 0x7e,
    };
    let spec = CollationSpec {
        id: 1,
        name: "test".into(),
        pad: Pad::SPACE,
        levels: (0..rules.levels).map(level).collect(),
        weight_len: rules.weight_len,
        simple: (0..simple_len)
            .map(|b| (b as u8).to_ascii_uppercase())
            .collect(),
        form: rules.form,
        char_filled: rules.char_filled,
    };
    Arc::new(Collation::new(spec, Arc::new(collator)).unwrap())
}

pub fn random_rules(rng: &mut StdRng) -> Rules {
    let levels = rng.random_range(1..=2);
    let weight_len = if levels == 1 {
        rng.random_range(1..=3)
    } else {
        2
    };
    let no_pad = rng.random_bool(0.4);
    Rules {
        weight_len,
        levels,
        no_pad,
        char_filled: no_pad && rng.random_bool(0.5),
        form: TextForm::Lost,
        simple: levels == 1 && rng.random_bool(0.5),
    }
}

/// Compares two texts by the definition of collations, without encoding them: level by level, and
/// for PAD SPACE as if spaces followed.
pub fn compare_text(rules: &Rules, is_char: Option<usize>, a: &[u8], b: &[u8]) -> Ordering {
    let filled = |text: &[u8]| {
        let mut text = text.to_vec();
        if let (Some(chars), true) = (is_char, rules.char_filled) {
            text.resize(chars.max(text.len()), b' ');
        }
        text
    };
    let (a, b) = (filled(a), filled(b));
    for level in 0..rules.levels {
        let (mut a, mut b) = (weights(rules, level, &a), weights(rules, level, &b));
        let no_pad = match is_char {
            Some(_) => rules.char_filled,
            None => level == 0 && rules.no_pad,
        };
        if !no_pad {
            let len = a.len().max(b.len());
            let space = if level == 0 { 0x20 } else { 2 };
            a.resize(len, space);
            b.resize(len, space);
        }
        let order = a.cmp(&b);
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

fn weights(rules: &Rules, level: u32, text: &[u8]) -> Vec<u32> {
    let folding = Folding {
        weight_len: usize::from(rules.weight_len),
    };
    let of = |&byte: &u8| {
        if byte == 0xff && rules.weight_len > 1 {
            return Some(0xff_0000 + u32::from(byte));
        }
        let weight = folding.weight(byte)?;
        Some(if level == 1 {
            2 + u32::from(byte.is_ascii_uppercase())
        } else {
            weight
        })
    };
    text.iter().filter_map(of).collect()
}

pub fn random_text(rng: &mut StdRng, max: usize) -> Vec<u8> {
    let letters = b"aAbB  \t\0\x01!~\x80\x9f\xa0\xe9\xfe\xff";
    (0..rng.random_range(0..=max))
        .map(|_| letters[rng.random_range(0..letters.len())])
        .collect()
}

pub fn encode(part: &KeyPart, value: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    part.encode(value, &mut out);
    out
}

/// A key part on the first column of the record, which lies after one byte of NULL bits.
pub fn part(kind: PartKind, source: PartSource, len: u32) -> KeyPart {
    KeyPart {
        column: 0,
        kind,
        source,
        offset: 1,
        len,
        null: None,
        desc: false,
        prefix: None,
        image_len: len,
    }
}

/// Asserts that the encodings of two values compare as `expected`, and that neither is a prefix of
/// the other.
#[track_caller]
pub fn assert_order(part: &KeyPart, a: Option<&[u8]>, b: Option<&[u8]>, expected: Ordering) {
    let (a_key, b_key) = (encode(part, a), encode(part, b));
    let expected = if part.desc {
        expected.reverse()
    } else {
        expected
    };
    assert_eq!(
        a_key.cmp(&b_key),
        expected,
        "{a:x?} {b:x?}: {a_key:x?} {b_key:x?}"
    );
    if expected.is_ne() {
        assert!(
            !a_key.starts_with(&b_key) && !b_key.starts_with(&a_key),
            "{a:x?} {b:x?}"
        );
    }
}

/// A collator that uses each byte as its own weight.
#[derive(Debug)]
struct Identity;

impl Collator for Identity {
    fn sort_key(&self, _level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
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

/// A collation in which each byte is its own weight.
pub fn identity(rules: &Rules) -> Arc<Collation> {
    let spec = collation(rules).spec().clone();
    Arc::new(Collation::new(spec, Arc::new(Identity)).unwrap())
}

/// A collator that uses the code points of UTF-8 text as weights.
#[derive(Debug)]
struct CodePoints;

impl Collator for CodePoints {
    fn sort_key(&self, _level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        let good = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).unwrap(),
        };
        for c in good.chars() {
            weights.extend_from_slice(&u32::from(c).to_be_bytes()[1..]);
        }
        good.len()
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        let text = std::str::from_utf8(text).unwrap();
        text.char_indices()
            .nth(chars)
            .map_or(text.len(), |(at, _)| at)
    }

    fn chars(&self, text: &[u8]) -> usize {
        String::from_utf8_lossy(text).chars().count()
    }
}

/// A collation in which the code points of UTF-8 text are the weights.
pub fn code_points() -> Arc<Collation> {
    let spec = CollationSpec {
        id: 46,
        name: "utf8mb4_bin".into(),
        pad: Pad::SPACE,
        levels: vec![CollationLevel {
            number: 0,
            space: 0x20,
            no_pad: false,
        }],
        weight_len: 3,
        simple: (0..0x80).collect(),
        form: TextForm::Utf8,
        char_filled: false,
    };
    Arc::new(Collation::new(spec, Arc::new(CodePoints)).unwrap())
}
