//! The files that make up the tree: edits, versions, manifest.
//!
//! A [`Version`] is the immutable set of files that make up the tree at one moment; readers pin it.
//! An [`Edit`] leads from one version to the next. The [`VersionSet`] first makes an edit durable
//! in the manifest and then installs the version it leads to.

mod blob_bytes_by_index;
mod delete_pacer;
mod edit;
mod file_handle;
mod file_meta;
mod file_sums;
mod flushable;
mod invariants;
mod load_manifest;
mod manifest;
mod manifest_salvage;
mod manifest_state;
mod move_costs;
mod quarantine;
mod rewrite_thresholds;
mod totals;
mod tree;
mod version_set;

pub use edit::{DatabaseIdentity, DeferredDeletion, Edit};
pub use file_handle::{FileHandle, FileSource, ReaderRef, Run};
pub use file_meta::{BLOB_FILES_MAX, FileLocation, FileMeta};
pub use file_sums::{FileList, FileSpan, FileSums};
pub use flushable::{Flushable, IngestedRun};
pub use load_manifest::{LoadedManifest, load, load_newest_manifest};
pub use manifest::{
    ManifestReader, create_manifest, manifest_name, parse_manifest_name, read_current,
};
pub use manifest_salvage::{Salvaged, removed_files, salvage_manifest};
pub use manifest_state::{ManifestState, PlacedFile};
pub use move_costs::MoveGroup;
pub use quarantine::{BlockedBytes, DamagedFile, MovableL0};
pub use rewrite_thresholds::{DEAD_SHARES, TOMBSTONE_SHARE, share_over};
pub use totals::{BlobTotals, FilesAndBytes};
pub use tree::{LAST_LEVEL, LEVELS, Version};
pub use version_set::{FileDeletionHold, RemoteDeletions, VersionSet, VersionSetContext};

#[cfg(test)]
pub(crate) mod testing;
