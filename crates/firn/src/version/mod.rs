//! The files that make up the tree: edits, versions, manifest.
//!
//! A [`Version`] is the tree at one moment: immutable, pinned by readers. An [`Edit`] leads from
//! one version to the next. The [`VersionSet`] makes edits durable in the manifest, then installs
//! them.

mod blob_bytes_by_index;
mod invariants;
mod edit;
mod load_manifest;
mod manifest;
mod file_meta;
mod delete_pacer;
mod flushable;
mod file_handle;
mod salvage;
mod version_set;
mod manifest_state;
mod tree;

pub use edit::{DeferredDeletion, Edit, DatabaseIdentity};
pub use load_manifest::{LoadedManifest, load, load_newest_manifest};
pub use manifest::{
    ManifestReader, create_manifest, manifest_name, parse_manifest_name, read_current,
};
pub use file_meta::{FileLocation, FileMeta};
pub use flushable::{Flushable, IngestedRun};
pub use file_handle::{FileHandle, FileSource, Run};
pub use salvage::{Salvaged, salvage};
pub use version_set::{VersionSetContext, FileDeletionHold, VersionSet};
pub use manifest_state::{PlacedFile, ManifestState};
pub use tree::{LAST_LEVEL, LEVELS, Version};

#[cfg(test)]
pub(crate) mod testing;
