//! Opens the store of a URL.

use crate::dir::DirStore;
use crate::env::{Clock, Files};
use crate::error::Result;
use crate::s3::{Environment, S3Store};
use crate::store::ObjectStore;
use crate::url::StorageUrl;
use std::sync::Arc;

/// The store that `firn_storage_url` names. It makes each request once: see [`crate::Retrying`].
///
/// # Errors
/// Of [`StorageUrl::parse`], [`DirStore::open`] and [`S3Store::open`].
pub fn open_store(
    url: &str,
    environment: &Environment,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn ObjectStore>> {
    Ok(match StorageUrl::parse(url)? {
        StorageUrl::Directory(root) => Arc::new(DirStore::open(root, files, clock)?),
        StorageUrl::Bucket(bucket) => Arc::new(S3Store::open(&bucket, environment)?),
    })
}

#[cfg(test)]
mod tests;
