//! The encoding of text: the weights of the text on each level of its collation, one level after
//! another.
//!
//! PAD SPACE texts compare as if infinitely many spaces followed. So the weights are written in
//! segments. A segment ends at each space and at the end of the text. It ends with the weight of a
//! space and a mark, which says how the rest of the text compares with infinitely many spaces:
//!
//! | mark | what follows |
//! |---|---|
//! | 1 | a rest that is below spaces; it is the next segment |
//! | 2 | nothing but spaces: the end |
//! | 3 | a rest that is above spaces; it is the next segment |
//!
//! Why this keeps the order: compare two texts at the first weight that differs. If neither weight
//! is that of a space, the keys differ in these weights. If one text has a space or ends there and
//! the other has another weight, the key of the first has the weight of a space there, which
//! compares correctly. If both have a space or end there, the marks follow. They decide, or they
//! are equal and the comparison goes on.
//!
//! Example, with weights equal to ASCII: `a` is `61 20 02`, `a\t` is `61 09 20 02`, and `a b` is
//! `61 20 03 62 20 02`. So `a\t` < `a` = `a ` < `a b`.
//!
//! Rejected: segments of a fixed length, which would pad every short text to that length.
//!
//! NO PAD texts are encoded as their weights, terminated by a zero byte. The weights 0 and 1 are
//! escaped as in `binary_string`.

use super::binary_string::{self, END, ESCAPE};
use super::collation::{Collation, CollationLevel, TextForm};
use super::key_reader::KeyReader;
use super::{damaged, weight_unit};
use crate::base::Result;
use std::cell::RefCell;

const BELOW: u8 = 1;
const LAST: u8 = 2;
const ABOVE: u8 = 3;

/// How the end of a text compares with a longer text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PadRule {
    /// VARCHAR and TEXT: each level compares as PAD SPACE or NO PAD, as [`CollationLevel::no_pad`]
    /// says.
    Value,
    /// CHAR in most collations: PAD SPACE on every level.
    Padded,
    /// CHAR in a collation with `char_filled`: the text is filled with spaces up to this many
    /// characters and then compares as NO PAD on every level.
    Filled(usize),
}

impl PadRule {
    fn no_pad(self, level: &CollationLevel) -> bool {
        match self {
            Self::Value => level.no_pad,
            Self::Padded => false,
            Self::Filled(_) => true,
        }
    }
}

#[derive(Default)]
struct Scratch {
    text: Vec<u8>,
    bytes: Vec<u8>,
    weights: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Encodes `text` and appends the bytes.
pub(super) fn encode(collation: &Collation, text: &[u8], pad_rule: PadRule, out: &mut Vec<u8>) {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut filled = std::mem::take(&mut scratch.text);
        let text = match pad_rule {
            PadRule::Filled(chars) => {
                filled.clear();
                filled.extend_from_slice(text);
                let missing = chars.saturating_sub(collation.collator().chars(text));
                for _ in 0..missing {
                    filled.extend_from_slice(collation.spec().pad.as_bytes());
                }
                &filled
            }
            _ => text,
        };
        encode_padded(collation, text, pad_rule, scratch, out);
        scratch.text = filled;
    });
}

fn encode_padded(
    collation: &Collation,
    text: &[u8],
    pad_rule: PadRule,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    let spec = collation.spec();
    if is_simple(text, spec.simple.len()) {
        let weights = &mut scratch.bytes;
        weights.clear();
        weights.extend(text.iter().map(|&byte| spec.simple[usize::from(byte)]));
        return put_bytes(weights, &spec.levels[0], pad_rule, out);
    }
    for level in &spec.levels {
        if spec.weight_len == 1 {
            scratch.bytes.clear();
            sort_key(collation, level, pad_rule, text, &mut scratch.bytes);
            put_bytes(&scratch.bytes, level, pad_rule, out);
        } else {
            weigh(collation, level, pad_rule, text, scratch);
            put_units(&scratch.weights, level, pad_rule, out);
        }
    }
}

/// Whether all bytes of `text` have a weight in the collation's table of simple weights, which has
/// `limit` weights; `false` if `limit` is 0, because then there is no table.
fn is_simple(text: &[u8], limit: usize) -> bool {
    match limit {
        0 => false,
        0x80 => text.is_ascii(),
        _ => text.iter().all(|&byte| usize::from(byte) < limit),
    }
}

/// Appends the weights of `text`, which counts as filled with spaces if the pad rule says so.
/// Returns the number of bytes of `text` that have a weight now.
fn sort_key(
    collation: &Collation,
    level: &CollationLevel,
    pad_rule: PadRule,
    text: &[u8],
    weights: &mut Vec<u8>,
) -> usize {
    let collator = collation.collator();
    match pad_rule {
        PadRule::Filled(_) => collator.filled_sort_key(level.number, text, weights),
        PadRule::Value | PadRule::Padded => collator.sort_key(level.number, text, weights),
    }
}

/// Collects the weights of `text` in `scratch`. A byte that begins no character gets a weight above
/// those of all characters.
fn weigh(
    collation: &Collation,
    level: &CollationLevel,
    pad_rule: PadRule,
    text: &[u8],
    scratch: &mut Scratch,
) {
    let weight_len = usize::from(collation.spec().weight_len);
    scratch.weights.clear();
    let mut rest = text;
    loop {
        scratch.bytes.clear();
        let weighed = sort_key(collation, level, pad_rule, rest, &mut scratch.bytes);
        let units = scratch.bytes.chunks_exact(weight_len);
        let number = |unit: &[u8]| unit.iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
        scratch.weights.extend(units.map(number));
        let Some((&bad, after)) = rest.get(weighed..).and_then(<[u8]>::split_first) else {
            return;
        };
        scratch
            .weights
            .push(weight_unit::MALFORMED + u32::from(bad));
        rest = after;
    }
}

fn put_bytes(weights: &[u8], level: &CollationLevel, pad_rule: PadRule, out: &mut Vec<u8>) {
    if pad_rule.no_pad(level) {
        binary_string::encode(out, weights);
    } else {
        put_padded(weights, level.space as u8, out, |run, out| {
            out.extend_from_slice(run);
        });
    }
}

fn put_units(weights: &[u32], level: &CollationLevel, pad_rule: PadRule, out: &mut Vec<u8>) {
    if pad_rule.no_pad(level) {
        for &weight in weights {
            if weight <= u32::from(ESCAPE) {
                out.extend_from_slice(&[ESCAPE, weight as u8 + 1]);
            } else {
                weight_unit::put(out, weight);
            }
        }
        out.push(END);
    } else {
        put_padded(weights, level.space, out, |run, out| {
            for &weight in run {
                weight_unit::put(out, weight);
            }
        });
    }
}

fn put_padded<W: Copy + PartialOrd>(
    weights: &[W],
    space: W,
    out: &mut Vec<u8>,
    put: impl Fn(&[W], &mut Vec<u8>),
) {
    let is_space = |weight: &W| *weight == space;
    let end = weights
        .iter()
        .rposition(|w| !is_space(w))
        .map_or(0, |i| i + 1);
    let mut rest = &weights[..end];
    while let Some(at) = rest.iter().position(is_space) {
        let spaces = rest[at..].iter().take_while(|w| is_space(w)).count();
        put(&rest[..at], out);
        // `at + spaces` is inside `rest`: the spaces at the end of the text were cut off, so
        // another weight follows these spaces.
        let mark = if rest[at + spaces] < space {
            BELOW
        } else {
            ABOVE
        };
        for _ in 0..spaces {
            put(&[space], out);
            out.push(mark);
        }
        rest = &rest[at + spaces..];
    }
    put(rest, out);
    put(&[space], out);
    out.push(LAST);
}

/// Skips an encoded text.
pub(super) fn skip(
    collation: &Collation,
    pad_rule: PadRule,
    reader: &mut KeyReader<'_>,
) -> Result<()> {
    let raw = collation.spec().weight_len == 1;
    for level in &collation.spec().levels {
        if raw && pad_rule.no_pad(level) {
            binary_string::skip(reader)?;
        } else if raw {
            while !{
                reader.until(level.space as u8)?;
                take_mark(reader)?
            } {}
        } else {
            let mut weights = Units::new(level, pad_rule);
            while weights.next(reader)?.is_some() {}
        }
    }
    Ok(())
}

/// Reads the mark that ends a segment of PAD SPACE text (see the top of this file). Returns whether
/// it is mark 2: the text ends here, and no segment follows.
fn take_mark(reader: &mut KeyReader<'_>) -> Result<bool> {
    match reader.byte()? {
        BELOW | ABOVE => Ok(false),
        LAST => Ok(true),
        _ => Err(damaged("mark behind a space")),
    }
}

/// Reads the weights of one level of a text, encoded as [units](super::weight_unit), until the text
/// ends on this level.
struct Units {
    space: Option<u32>,
}

impl Units {
    fn new(level: &CollationLevel, pad_rule: PadRule) -> Self {
        let space = (!pad_rule.no_pad(level)).then_some(level.space);
        Self { space }
    }

    fn next(&mut self, reader: &mut KeyReader<'_>) -> Result<Option<u32>> {
        let weight = weight_unit::take(reader)?;
        match self.space {
            Some(space) if weight == space => Ok((!take_mark(reader)?).then_some(weight)),
            Some(_) => Ok(Some(weight)),
            None if weight == u32::from(END) => Ok(None),
            None if weight == u32::from(ESCAPE) => match reader.byte()? {
                escaped @ 1..=2 => Ok(Some(u32::from(escaped - 1))),
                _ => Err(damaged("escape in text")),
            },
            None => Ok(Some(weight)),
        }
    }
}

/// Decodes a text whose weights give it back (see [`TextForm`]) into the first bytes of `room`, and
/// returns its length in bytes. PAD SPACE text has lost its trailing spaces; the unpack info has
/// their number.
pub(super) fn decode(
    collation: &Collation,
    pad_rule: PadRule,
    reader: &mut KeyReader<'_>,
    room: &mut [u8],
) -> Result<usize> {
    let spec = collation.spec();
    let level = &spec.levels[0];
    let mut sink = Sink { room, len: 0 };
    match spec.form {
        TextForm::Lost => return Err(damaged("text that weights do not give back")),
        TextForm::Bytes if pad_rule.no_pad(level) => {
            return binary_string::decode(reader, sink.room);
        }
        TextForm::Bytes => loop {
            let space = level.space as u8;
            let (run, mask) = reader.until(space)?;
            for byte in run {
                sink.push(&[byte ^ mask])?;
            }
            if take_mark(reader)? {
                break;
            }
            sink.push(&[space])?;
        },
        TextForm::Utf8 => {
            let mut weights = Units::new(level, pad_rule);
            while let Some(weight) = weights.next(reader)? {
                sink.push_code_point(weight)?;
            }
        }
    }
    Ok(sink.len)
}

struct Sink<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Sink<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.room
            .get_mut(self.len..self.len + bytes.len())
            .ok_or_else(|| damaged("text longer than its column"))?
            .copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Appends a code point up to 0x10ffff in UTF-8. Surrogates are encoded too, because the server
    /// accepts them in text. A weight from [`weight_unit::MALFORMED`] on stands for a byte that is
    /// not UTF-8, and that byte is appended.
    fn push_code_point(&mut self, code: u32) -> Result<()> {
        let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
        match code {
            0..0x80 => self.push(&[code as u8]),
            0x80..0x800 => self.push(&[0xc0 | (code >> 6) as u8, tail(0)]),
            0x800..0x1_0000 => self.push(&[0xe0 | (code >> 12) as u8, tail(6), tail(0)]),
            0x1_0000..0x11_0000 => {
                self.push(&[0xf0 | (code >> 18) as u8, tail(12), tail(6), tail(0)])
            }
            weight_unit::MALFORMED.. => self.push(&[code as u8]),
            _ => Err(damaged("code point out of range")),
        }
    }
}
