//! Units: collation weights of two or three bytes, encoded in one to four bytes.
//!
//! Units sort as their weights do, and no unit is a prefix of another. Under the collations
//! `general_ci` and `bin`, the unit of an ASCII letter has one byte, that of other letters two
//! bytes, and that of a Han character at most three. If weights were stored in two plain bytes,
//! each key of ASCII text would be twice as long as the text.
//!
//! | weight | unit |
//! |---|---|
//! | below 0x80 | the weight |
//! | below 0x6d80 | 0x80 + high, low of (weight - 0x80) |
//! | below 0x126d80 | 0xed + high, middle, low of (weight - 0x6d80) |
//! | below 0x1000000 | 0xff, three bytes of the weight |

use super::damaged;
use super::key_reader::KeyReader;
use crate::base::Result;

const TWO: u32 = 0x80;
const THREE: u32 = 0x6d80;
const FOUR: u32 = 0x12_6d80;
const LEAD_THREE: u8 = 0xed;
const LEAD_FOUR: u8 = 0xff;

/// A byte that begins no character gets this weight plus the byte's value, which is above all
/// weights of characters.
pub(super) const MALFORMED: u32 = 0xff_0000;

pub(super) fn put(out: &mut Vec<u8>, weight: u32) {
    debug_assert!(weight < 1 << 24);
    let [_, high, middle, low] = weight.to_be_bytes();
    if weight < TWO {
        out.push(low);
    } else if weight < THREE {
        let [_, _, high, low] = (weight - TWO).to_be_bytes();
        out.extend_from_slice(&[0x80 + high, low]);
    } else if weight < FOUR {
        let [_, high, middle, low] = (weight - THREE).to_be_bytes();
        out.extend_from_slice(&[LEAD_THREE + high, middle, low]);
    } else {
        out.extend_from_slice(&[LEAD_FOUR, high, middle, low]);
    }
}

pub(super) fn take(reader: &mut KeyReader<'_>) -> Result<u32> {
    let lead = reader.byte()?;
    let mut number = |lead: u8, more: usize| -> Result<u32> {
        let mut value = u32::from(lead);
        for _ in 0..more {
            value = value << 8 | u32::from(reader.byte()?);
        }
        Ok(value)
    };
    match lead {
        0..0x80 => Ok(u32::from(lead)),
        0x80..LEAD_THREE => Ok(number(lead - 0x80, 1)? + TWO),
        LEAD_THREE..LEAD_FOUR => Ok(number(lead - LEAD_THREE, 2)? + THREE),
        LEAD_FOUR => match number(0, 3)? {
            weight if weight >= FOUR => Ok(weight),
            _ => Err(damaged("weight in a unit too long")),
        },
    }
}
