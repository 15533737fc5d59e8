//! Cold files of a database in object stores: implements [`firn::store::RemoteFiles`] with
//! `firn-objects`.
//!
//! | layer | modules |
//! |---|---|
//! | 0 | `names`, `errors`, `env_files` |
//! | 1 | `owner`, `pieces` |
//! | 2 | `identity`, `file` |
//! | 3 | `cold_store` |
//! | 4 | `system` |

mod cold_store;
mod env_files;
mod errors;
mod file;
mod identity;
mod lazy_cache;
mod names;
mod owner;
mod pieces;
mod system;

pub use cold_store::{ColdStore, ColdStoreParts, ColdStoreStats, SharesDisk};
pub use identity::{OpenStore, Ownership};
pub use names::{IDENTITY, OWNER, object_name, parse_object_name};
pub use owner::OwnerFile;
pub use system::{open_cold_store, open_to_read};
