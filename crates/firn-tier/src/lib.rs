//! Cold files of a database in object stores: implements [`firn::store::RemoteFiles`] with
//! `firn-objects`.
//!
//! | layer | modules |
//! |---|---|
//! | 0 | `names`, `errors`, `env_files` |
//! | 1 | `identity`, `pieces` |
//! | 2 | `file` |
//! | 3 | `cold_store` |

mod cold_store;
mod env_files;
mod errors;
mod file;
mod identity;
mod names;
mod pieces;

pub use cold_store::{ColdStore, ColdStoreParts, ColdStoreStats};
pub use identity::OpenStore;
pub use names::{IDENTITY, object_name, parse_object_name};
