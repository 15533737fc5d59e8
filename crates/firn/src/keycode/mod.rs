//! Order-preserving encoding of SQL key parts. The caller supplies collation weights as bytes.
//!
//! The bytes of two keys compare as the values compare in the server: equal values have equal
//! bytes, and no encoded part is a prefix of another one. So parts are simply concatenated.
//! Example: `(5, 'ab')` of `(INT, VARCHAR(9) COLLATE latin1_swedish_ci)`:
//!
//! ```text
//! 80 00 00 05 | 41 42 20 02      sign flipped | weights, the space after them, the mark of the end
//! ```
//!
//! [`KeyCodec`] encodes one list of parts. [`IndexCodec`] adds the primary key behind the declared
//! parts of an index, and the value of the entry, which holds the bytes that the key cannot give
//! back.

mod bytes;
mod codec;
mod collation;
mod ends;
mod index;
mod number;
mod part;
mod plan;
mod reader;
mod text;
mod unit;
mod unpack;

pub use crate::base::record::{NullBit, Pad};
pub use codec::{KeyCodec, KeyImageInfo};
pub use collation::{Collation, CollationSpec, Collator, CollationLevel, TextForm};
pub use ends::{KeyPrefixExtractor, NoCollator};
pub use index::IndexCodec;
pub use part::{KeyPart, PartKind, PartSource};
pub use plan::IndexDecodePlan;

use crate::base::Error;

/// An error for a damaged key or entry value. The reader of the file adds its name and the offset.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("key: {what}"))
}

#[cfg(test)]
mod tests;
