//! Files in object stores: buckets of S3-compatible stores, and directories.
//!
//! The crate knows nothing of the engine, which calls it with names and bytes. Clock, local files
//! and threads are behind traits ([`Clock`], [`Files`], [`Jobs`]), the store is one itself
//! ([`ObjectStore`]); [`mem`] has the simulated twins of all.
//!
//! | layer | modules |
//! |---|---|
//! | 0 | `error`, `latencies`, `random` |
//! | 1 | `env`, `store`, `health` |
//! | 2 | `budget`, `url`, `mem`, `metered`, `dir`, `retry` |
//! | 3 | `s3` |
//! | 4 | `open`, `cache`, `uploads` |

mod budget;
mod cache;
mod dir;
mod env;
mod error;
mod health;
mod latencies;
pub mod mem;
mod metered;
mod open;
mod random;
mod retry;
mod s3;
mod store;
mod uploads;
mod url;

pub use cache::{
    CHUNK_BYTES, CacheStats, CachedFile, CachedRead, FileCache, FileTraits, REQUEST_BYTES_MAX,
    Scan, Verify,
};
pub use dir::DirStore;
pub use env::{
    Clock, Entry, FileInfo, Files, Job, Jobs, LocalFile, Open, SystemClock, SystemFiles, Threads,
};
pub use error::{Error, ErrorKind, KINDS, Result};
pub use health::{HealthState, HealthStats};
pub use latencies::Latencies;
pub use metered::{Metered, RequestKind, RequestMeter, RequestStats};
pub use open::open_store;
pub use random::SplitMix64;
pub use retry::{Deadlines, Retrying};
pub use s3::{Environment, OpenSsl, RANGES_AT_ONCE, S3Store};
pub use store::{
    ObjectInfo, ObjectStore, PART_BYTES, Page, PartTag, PutNew, UploadId, UploadInfo,
    WHOLE_BYTES_MAX, check_name, for_each_page,
};
pub use uploads::{Ended, Outcome, Swept, Ticket, Upload, UploadStats, Uploads};
pub use url::{Bucket, StorageUrl, Style};
