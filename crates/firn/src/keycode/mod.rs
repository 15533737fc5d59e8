//! Order-preserving encoding of SQL key parts; collation weights arrive as bytes.
//!
//! The bytes of two keys compare as the values compare in the server: equal values have equal
//! bytes, and no encoded part is the prefix of another one, so parts are simply put one behind the
//! other. `(5, 'ab')` of `(INT, VARCHAR(9) COLLATE latin1_swedish_ci)`:
//!
//! ```text
//! 80 00 00 05 | 41 42 20 02         sign flipped | weights, the space after them, "nothing follows"
//! ```
//!
//! [`KeyCodec`] knows one list of parts. [`IndexCodec`] joins the declared parts of an index with
//! the primary key behind them, and with the value of the entry, which holds what the key cannot
//! give back.

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
pub use collation::{Collation, CollationSpec, Collator, Level, TextForm};
pub use ends::{KeyEnds, Weightless};
pub use index::IndexCodec;
pub use part::{KeyPart, PartKind, Source};
pub use plan::IndexPlan;

use crate::base::Error;

/// A damaged key or entry value. The reader that knows them adds file and offset.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("key: {what}"))
}

#[cfg(test)]
mod tests;
