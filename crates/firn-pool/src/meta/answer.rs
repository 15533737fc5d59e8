//! Parses what a node sends. Bytes that are not exactly what the protocol allows are
//! [`Parsed::Bad`]; the caller then closes the connection, since nothing behind them can be
//! trusted to be where it seems.

use super::VALUE_LEN_MAX;

/// One answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// A value, with the token of its request.
    Value {
        /// The token.
        opaque: u64,
        /// The bytes.
        value: &'a [u8],
    },
    /// The end of a batch.
    EndOfBatch,
    /// The node did not take a value: no memory, or too large.
    NotTaken,
    /// A counter of the node.
    Counter(&'a str, &'a str),
    /// The end of the counters.
    EndOfCounters,
}

/// The beginning of some bytes, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// An answer, and its length in bytes.
    Answer(Answer<'a>, usize),
    /// The beginning of an answer. It has at least this number of bytes.
    Incomplete(usize),
    /// Something else.
    Bad,
}

/// Longest line of an answer. Lines of counters are the longest ones.
const LINE_LEN_MAX: usize = 512;

/// Parses the answer at the beginning of `bytes`. Values longer than `value_max` are bad.
pub fn parse(bytes: &[u8], value_max: usize) -> Parsed<'_> {
    let window = &bytes[..bytes.len().min(LINE_LEN_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() < LINE_LEN_MAX {
            true => Parsed::Incomplete(bytes.len() + 1),
            false => Parsed::Bad,
        };
    };
    let Some(line) = bytes[..end]
        .strip_suffix(b"\r")
        .and_then(|line| str::from_utf8(line).ok())
    else {
        return Parsed::Bad;
    };
    let answer = match line {
        "MN" => Answer::EndOfBatch,
        "NS" => Answer::NotTaken,
        "END" => Answer::EndOfCounters,
        _ => {
            if let Some(rest) = line.strip_prefix("VA ") {
                return parse_value(bytes, rest, end + 1, value_max);
            }
            // Out of memory in several spellings, or too large: memcached has swallowed the value.
            if line.starts_with("SERVER_ERROR ") {
                Answer::NotTaken
            } else if let Some((name, value)) = line
                .strip_prefix("STAT ")
                .and_then(|rest| rest.split_once(' '))
            {
                Answer::Counter(name, value)
            } else {
                return Parsed::Bad;
            }
        }
    };
    Parsed::Answer(answer, end + 1)
}

/// `rest` is the line behind `VA `; the value begins at `start`.
fn parse_value<'a>(bytes: &'a [u8], rest: &str, start: usize, value_max: usize) -> Parsed<'a> {
    let Some((len, opaque)) = rest.split_once(" O") else {
        return Parsed::Bad;
    };
    let (Some(len), Some(opaque)) = (number(len), number(opaque)) else {
        return Parsed::Bad;
    };
    if len > value_max.min(VALUE_LEN_MAX) as u64 {
        return Parsed::Bad;
    }
    let end = start + len as usize;
    match bytes.get(end..end + 2) {
        None => Parsed::Incomplete(end + 2),
        Some(b"\r\n") => Parsed::Answer(
            Answer::Value {
                opaque,
                value: &bytes[start..end],
            },
            end + 2,
        ),
        Some(_) => Parsed::Bad,
    }
}

/// As `str::parse`, without signs and leading zeros.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = text.len() == 1 || !text.starts_with('0');
    if digits && plain {
        text.parse().ok()
    } else {
        None
    }
}
