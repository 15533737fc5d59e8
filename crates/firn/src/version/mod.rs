//! The files that make up the tree: edits, versions, manifest.
//!
//! A [`Version`] is the tree at one moment: immutable, pinned by readers. An [`Edit`] leads from
//! one version to the next. The [`VersionSet`] makes edits durable in the manifest, then installs
//! them.

mod blob_shares;
mod check;
mod edit;
mod load;
mod manifest;
mod meta;
mod pacer;
mod queue;
mod run;
mod salvage;
mod set;
mod state;
mod tree;

pub use edit::{DeferredDeletion, Edit, DatabaseIdentity};
pub use load::{LoadedManifest, load, load_newest};
pub use manifest::{
    ManifestReader, create_manifest, manifest_name, parse_manifest_name, read_current,
};
pub use meta::{FileLocation, FileMeta};
pub use queue::{Flushable, IngestedRun};
pub use run::{FileHandle, FileSource, Run};
pub use salvage::{Salvaged, salvage};
pub use set::{VersionSetContext, FileDeletionHold, VersionSet};
pub use state::{PlacedFile, ManifestState};
pub use tree::{LAST_LEVEL, LEVELS, Version};

#[cfg(test)]
pub(crate) mod testing;
