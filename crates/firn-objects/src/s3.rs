//! A bucket of an S3-compatible store.
//!
//! The crate `object_store` signs, sends and reads requests, with the system's OpenSSL for
//! cryptography and TLS (`crypto`). Its own retries are off, since [`crate::Retrying`] must see
//! each answer. It has no request for uploads that have not ended: `uploads` has that one.

mod answer;
mod credentials;
mod crypto;
mod uploads;
mod xml;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{
    ObjectInfo, ObjectStore, PART_BYTES, Page, PartTag, PutNew, UploadId, UploadInfo, check_len,
    check_name,
};
use crate::url::{Bucket, Style, parse_endpoint};
use answer::{ClassifyingConnector, is_taken, to_error};
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectStore as _, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

pub use credentials::Environment;
pub use crypto::OpenSsl;

/// Ranges that are asked for at once.
pub const RANGES_AT_ONCE: usize = 4;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a store may be silent before and in an answer to a request that sends no body.
const SILENCE: Duration = Duration::from_secs(10);
/// A request may take this long, and `BYTE_US` more for each byte.
const REQUEST: Duration = Duration::from_secs(15);
/// The time of a byte, microseconds: several large requests share a slow link, and all succeed.
const BYTE_US: u64 = 4;
/// How long unused connections are kept: not as long as stores do, which is about 20 s.
const IDLE: Duration = Duration::from_secs(15);

/// Objects in a bucket.
pub struct S3Store {
    store: AmazonS3,
    /// For requests that `object_store` does not have.
    client: HttpClient,
    bucket_url: String,
    region: String,
    /// Ends with a slash, or is empty.
    prefix: String,
    /// True once the store is closed.
    closes: watch::Sender<bool>,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
}

impl S3Store {
    /// The store of a bucket. It sends nothing yet.
    ///
    /// # Errors
    /// `Invalid` if the environment makes no sense, `Refused` if a file of credentials cannot be
    /// read.
    pub fn open(bucket: &Bucket, environment: &Environment) -> Result<Self> {
        let invalid = |error: object_store::Error| to_error("s3", error);
        let endpoint = match &bucket.endpoint {
            Some(endpoint) => Some(endpoint.clone()),
            None => {
                let named = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
                let found = environment.first(&named);
                found.map(|text| parse_endpoint(&text)).transpose()?
            }
        };
        let region = bucket.region.clone();
        let region = region.or_else(|| environment.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        let (host_url, bucket_url, is_virtual) = urls(bucket, endpoint.as_deref(), &region);
        let is_plain = host_url.starts_with("http://");
        let options = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_connect_timeout(CONNECT)
            .with_timeout_disabled()
            .with_pool_idle_timeout(IDLE)
            .with_http1_only();
        let builder = AmazonS3Builder::new()
            .with_bucket_name(&bucket.name)
            .with_region(&region)
            .with_endpoint(&host_url)
            .with_virtual_hosted_style_request(is_virtual)
            .with_client_options(options.clone())
            .with_crypto_provider(Arc::new(OpenSsl))
            .with_checksum_algorithm(Checksum::SHA256)
            .with_disable_bulk_delete(true)
            .with_http_connector(ClassifyingConnector)
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            });
        let builder = credentials::add(builder, environment)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("firn-objects")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Error::from_io(&error, "threads of the object store"))?;
        Ok(Self {
            store: builder.build().map_err(invalid)?,
            client: ClassifyingConnector.connect(&options).map_err(invalid)?,
            bucket_url,
            region,
            prefix: match bucket.prefix.as_str() {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            closes: watch::Sender::new(false),
            runtime: Some(runtime),
        })
    }

    fn path(&self, name: &str) -> Result<Path> {
        check_name(name)?;
        Ok(Path::from(format!("{}{name}", self.prefix)))
    }

    /// The name of an object of this store. Others may have put something else below the prefix.
    fn name(&self, path: &str) -> Option<String> {
        let name = path.strip_prefix(&self.prefix)?;
        check_name(name).is_ok().then(|| name.to_owned())
    }

    /// Waits for the answer to a request that sends or gets `bytes` bytes.
    fn run<T>(
        &self,
        name: &str,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let answered = self.answer(name, bytes, request)?;
        answered.map_err(|error| to_error(name, error))
    }

    fn answer<T>(&self, name: &str, bytes: u64, request: impl Future<Output = T>) -> Result<T> {
        let limit = REQUEST + Duration::from_micros(bytes.saturating_mul(BYTE_US));
        let runtime = self.runtime.as_ref().expect("runs until it is dropped");
        let mut closes = self.closes.subscribe();
        let answered = runtime.block_on(async {
            let answered = pin!(tokio::time::timeout(limit, request));
            let closed = pin!(closes.wait_for(|closes| *closes));
            match select(answered, closed).await {
                Either::Left((answered, _)) => Some(answered.ok()),
                Either::Right(_) => None,
            }
        });
        let text = match answered {
            Some(Some(answer)) => return Ok(answer),
            Some(None) => format!("{name}: no answer within {} s", limit.as_secs()),
            None => format!("{name}: the store is closed"),
        };
        Err(Error::new(ErrorKind::Unreachable, text))
    }
}

/// The endpoint for `object_store`, the URL of the bucket, and whether the bucket is in the host.
fn urls(bucket: &Bucket, endpoint: Option<&str>, region: &str) -> (String, String, bool) {
    let aws = format!("https://s3.{region}.amazonaws.com");
    let host = endpoint.unwrap_or(&aws);
    // A certificate for *.s3.amazonaws.com does not cover a bucket with dots.
    let default = if endpoint.is_some() || bucket.name.contains('.') {
        Style::Path
    } else {
        Style::Virtual
    };
    if bucket.style.unwrap_or(default) == Style::Path {
        return (host.to_owned(), format!("{host}/{}", bucket.name), false);
    }
    let (scheme, rest) = host.split_once("://").unwrap_or(("https", host));
    let url = format!("{scheme}://{}.{rest}", bucket.name);
    (url.clone(), url, true)
}

impl ObjectStore for S3Store {
    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let path = self.path(name)?;
        let len = bytes.len() as u64;
        self.run(name, len, self.store.put(&path, PutPayload::from(bytes)))?;
        Ok(())
    }

    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew> {
        let path = self.path(name)?;
        let len = bytes.len() as u64;
        let options = PutOptions::from(PutMode::Create);
        let put = self.store.put_opts(&path, PutPayload::from(bytes), options);
        match self.answer(name, len, put)? {
            Ok(_) => Ok(PutNew::Created),
            Err(error) if is_taken(&error) => Ok(PutNew::Exists),
            Err(error) => Err(to_error(name, error)),
        }
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        let path = self.path(name)?;
        let got = async { self.store.get(&path).await?.bytes().await };
        self.run(name, crate::store::WHOLE_BYTES_MAX, got)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let mut got = self.get_ranges(name, &[range])?;
        Ok(got.remove(0))
    }

    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.path(name)?;
        let each = stream::iter(ranges).map(|range| async {
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                ..GetOptions::default()
            };
            self.store.get_opts(&path, options).await?.bytes().await
        });
        let all = each.buffered(RANGES_AT_ONCE).try_collect::<Vec<Bytes>>();
        let len = ranges
            .iter()
            .map(|range| range.end.saturating_sub(range.start))
            .sum();
        let got = self.run(name, len, all)?;
        let checked = got.into_iter().zip(ranges);
        checked
            .map(|(bytes, range)| check_len(name, range, bytes))
            .collect()
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        let path = self.path(name)?;
        let meta = self.run(name, 0, self.store.head(&path))?;
        Ok(ObjectInfo {
            name: name.to_owned(),
            bytes: meta.size,
            modified_s: meta.last_modified.timestamp().max(0) as u64,
        })
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        let options = PaginatedListOptions {
            page_token: token.map(str::to_owned),
            ..PaginatedListOptions::default()
        };
        let whole = format!("{}{prefix}", self.prefix);
        let listed = self.store.list_paginated(Some(&whole), options);
        let listed = self.run("list", 0, listed)?;
        let items = listed.result.objects.into_iter().filter_map(|meta| {
            Some(ObjectInfo {
                name: self.name(meta.location.as_ref())?,
                bytes: meta.size,
                modified_s: meta.last_modified.timestamp().max(0) as u64,
            })
        });
        Ok(Page {
            items: items.collect(),
            next: listed.page_token,
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        absent_is_ok(self.run(name, 0, self.store.delete(&path)))
    }

    fn begin_upload(&self, name: &str) -> Result<UploadId> {
        let path = self.path(name)?;
        Ok(UploadId(self.run(
            name,
            0,
            self.store.create_multipart(&path),
        )?))
    }

    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag> {
        let path = self.path(name)?;
        let len = bytes.len() as u64;
        let payload = PutPayload::from(bytes);
        let put = self.store.put_part(&path, &id.0, index as usize, payload);
        Ok(PartTag(self.run(name, len, put)?.content_id))
    }

    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()> {
        let path = self.path(name)?;
        let parts = parts.iter().map(|tag| PartId {
            content_id: tag.0.clone(),
        });
        let complete = self.store.complete_multipart(&path, &id.0, parts.collect());
        // The store may copy all parts before it answers: that takes as long as to send one.
        self.run(name, PART_BYTES, complete)?;
        Ok(())
    }

    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()> {
        let path = self.path(name)?;
        absent_is_ok(self.run(name, 0, self.store.abort_multipart(&path, &id.0)))
    }

    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
        uploads::page(self, prefix, token)
    }

    fn close(&self) {
        self.closes.send_replace(true);
    }
}

fn absent_is_ok(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::Absent => Ok(()),
        result => result,
    }
}

impl Drop for S3Store {
    /// Does not wait for requests: nobody waits for their answers any more.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_stub;
