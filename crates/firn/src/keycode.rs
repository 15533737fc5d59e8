//! Encoding of SQL keys as bytes that keep the order of the values. A collator of the server
//! supplies the collation weights of text.
//!
//! The bytes of two keys compare as the values compare in the server, and equal values have equal
//! bytes. No encoded part is a prefix of another encoding of the same part. So the encoded parts of
//! a key are simply concatenated.
//! Example: `(5, 'ab')` of `(INT, VARCHAR(9) COLLATE latin1_swedish_ci)`:
//!
//! ```text
//! 80 00 00 05 | 41 42 20 02      sign flipped | weights, the space after them, the mark of the end
//! ```
//!
//! [`KeyCodec`] encodes a list of parts. [`IndexCodec`] encodes the entries of an index: the key,
//! which is the declared parts (those that the definition of the index names) and behind them the
//! primary key, and the value, which has the bytes of columns that the key cannot give back.

mod binary_string;
mod collation;
mod index_codec;
mod index_decode_plan;
mod key_codec;
mod key_part;
mod key_prefix_extractor;
mod key_reader;
mod number;
mod text_weights;
mod unpack_info;
mod weight_unit;

pub use crate::base::record_buffer::{NullBit, Pad};
pub use collation::{Collation, CollationLevel, CollationSpec, Collator, TextForm};
pub use index_codec::IndexCodec;
pub use index_decode_plan::IndexDecodePlan;
pub use key_codec::{KeyCodec, KeyImageInfo};
pub use key_part::{KeyPart, PartKind, PartSource};
pub use key_prefix_extractor::{KeyPrefixExtractor, NoCollator};

use crate::base::Error;

/// An error for a damaged key or entry value. The reader of the file adds the file's name and the
/// offset.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("key: {what}"))
}

#[cfg(test)]
mod tests;
