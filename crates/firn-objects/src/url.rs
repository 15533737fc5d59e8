//! `firn_storage_url`: where the objects are.
//!
//! ```text
//! file:///shared/firn
//! s3://bucket/prefix
//! s3://bucket/prefix?endpoint=http://127.0.0.1:7070&region=us-east-1&style=path
//! ```
//!
//! Parameters stand above the environment (`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`,
//! `AWS_DEFAULT_REGION`). Credentials never stand here.

use crate::error::{Error, ErrorKind, Result};
use crate::store::check_name;
use std::fmt;
use std::path::PathBuf;

/// Where the objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageUrl {
    /// A directory, with its absolute path.
    Directory(PathBuf),
    /// A bucket.
    Bucket(Bucket),
}

/// A bucket of an S3-compatible store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The bucket.
    pub name: String,
    /// The names of all objects begin with it; empty, or without a slash at its ends.
    pub prefix: String,
    /// The store, if it is not AWS: scheme, host, port.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Where requests have the bucket.
    pub style: Option<Style>,
}

/// Where requests have the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// In the path: the default of stores with an endpoint.
    Path,
    /// In the name of the host: the default of AWS.
    Virtual,
}

fn invalid(text: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("storage URL: {text}"))
}

impl StorageUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// `Invalid`, with a text that says what is wrong. The text does not repeat what stands before
    /// an `@`, which could be a password.
    pub fn parse(url: &str) -> Result<Self> {
        if let Some(path) = url.strip_prefix("file://") {
            return parse_directory(path);
        }
        if let Some(rest) = url.strip_prefix("s3://") {
            return Ok(Self::Bucket(parse_bucket(rest)?));
        }
        Err(invalid(match url.split_once("://") {
            Some((scheme, _)) => format!("the scheme {scheme:?} is neither s3 nor file"),
            None => "it begins neither with s3:// nor with file://".to_owned(),
        }))
    }
}

fn parse_directory(path: &str) -> Result<StorageUrl> {
    if !path.starts_with('/') {
        return Err(invalid(
            "a directory is written file:///path, with three slashes",
        ));
    }
    if path.contains(['?', '#', '%']) {
        return Err(invalid("the path of a directory has no ?, # or %"));
    }
    Ok(StorageUrl::Directory(PathBuf::from(path)))
}

fn parse_bucket(rest: &str) -> Result<Bucket> {
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    if location.contains('@') {
        return Err(invalid(
            "credentials do not stand in it: they come from the environment, a file or the \
             instance's role",
        ));
    }
    let (name, prefix) = location.split_once('/').unwrap_or((location, ""));
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if !(3..=63).contains(&name.len())
        || !name.bytes().all(allowed)
        || name.starts_with(['.', '-'])
        || name.ends_with(['.', '-'])
    {
        return Err(invalid(format!(
            "{name:?} is no name of a bucket: 3 to 63 of a-z, 0-9, dot and hyphen"
        )));
    }
    let prefix = prefix.trim_end_matches('/');
    if !prefix.is_empty() && check_name(prefix).is_err() {
        return Err(invalid(format!(
            "the prefix {prefix:?} has other characters than A-Z, a-z, 0-9, dot, hyphen, \
             underscore and single slashes"
        )));
    }
    let mut bucket = Bucket {
        name: name.to_owned(),
        prefix: prefix.to_owned(),
        endpoint: None,
        region: None,
        style: None,
    };
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match key {
            "endpoint" => bucket.endpoint = Some(parse_endpoint(value)?),
            "region" => bucket.region = Some(parse_region(value)?),
            "style" => bucket.style = Some(parse_style(value)?),
            _ => {
                return Err(invalid(format!(
                    "the parameter {key:?} is none of endpoint, region, style"
                )));
            }
        }
    }
    Ok(bucket)
}

/// Checks an endpoint: `http://` or `https://`, a host, perhaps a port.
pub(crate) fn parse_endpoint(text: &str) -> Result<String> {
    let host = text
        .strip_prefix("http://")
        .or(text.strip_prefix("https://"));
    let Some(host) = host else {
        return Err(invalid(
            "the endpoint begins neither with http:// nor with https://",
        ));
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    if host.contains('@') {
        return Err(invalid("credentials do not stand in the endpoint"));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || !host.bytes().all(allowed) {
        return Err(invalid(format!(
            "the endpoint {text:?} is no scheme, host and port"
        )));
    }
    Ok(text.strip_suffix('/').unwrap_or(text).to_owned())
}

fn parse_region(text: &str) -> Result<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if text.is_empty() || !text.bytes().all(allowed) {
        return Err(invalid(format!("{text:?} is no region")));
    }
    Ok(text.to_owned())
}

fn parse_style(text: &str) -> Result<Style> {
    match text {
        "path" => Ok(Style::Path),
        "virtual" => Ok(Style::Virtual),
        _ => Err(invalid(format!(
            "the style {text:?} is neither path nor virtual"
        ))),
    }
}

#[cfg(test)]
mod tests;
