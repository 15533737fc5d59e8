//! Ground layer: types and vocabulary that all other modules share.

pub mod allocator_stats;
pub mod blob_buf;
pub mod blob_ref;
pub mod checksum;
mod counter;
pub mod encryption_envelope;
pub mod epoch;
pub mod error;
pub mod event_listener;
pub mod foreign_key_error;
pub mod health;
pub mod internal_iterator;
pub mod invariant;
pub mod key;
pub mod key_range;
pub mod memory_tracker;
pub mod options;
pub mod parker;
pub mod pause_points;
pub mod pool;
pub mod prefix_extractor;
pub mod read_meter;
pub mod record_buffer;
pub mod row_count;
pub mod sketch;
pub mod summed_list;
pub mod value;
pub mod varint;
pub mod wall_clock;
pub mod work_count;

pub use counter::{CounterChanges, CounterValue};
pub use error::{Error, ErrorKind, FailureClass, Result};
pub use foreign_key_error::{ForeignKeyError, ForeignKeyViolation};
pub use internal_iterator::InternalIterator;
pub use key::{IndexId, InternalKey, Kind, Seqno};
pub use value::Value;
