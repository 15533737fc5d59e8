//! Ground layer: types and vocabulary that all other modules share.

pub mod checksum;
mod counter;
pub mod envelope;
pub mod epoch;
pub mod error;
pub mod events;
pub mod gauge;
pub mod health;
pub mod invariant;
pub mod iter;
pub mod key;
pub mod live_rows;
pub mod options;
pub mod pause;
pub mod range;
pub mod record;
pub mod shape;
pub mod sketch;
pub mod value;
pub mod varint;

pub use counter::CounterValue;
pub use error::{Error, ErrorKind, Result};
pub use iter::InternalIterator;
pub use key::{IndexId, InternalKey, Kind, Seqno};
pub use value::Value;
