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

mod binary_string;
mod key_codec;
mod collation;
mod prefix_extractor;
mod index_codec;
mod number;
mod key_part;
mod index_decode_plan;
mod key_reader;
mod text_weights;
mod weight_unit;
mod unpack_info;

pub use crate::base::record_buffer::{NullBit, Pad};
pub use key_codec::{KeyCodec, KeyImageInfo};
pub use collation::{Collation, CollationSpec, Collator, CollationLevel, TextForm};
pub use prefix_extractor::{KeyPrefixExtractor, NoCollator};
pub use index_codec::IndexCodec;
pub use key_part::{KeyPart, PartKind, PartSource};
pub use index_decode_plan::IndexDecodePlan;

use crate::base::Error;

/// An error for a damaged key or entry value. The reader of the file adds its name and the offset.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("key: {what}"))
}

#[cfg(test)]
mod tests;
