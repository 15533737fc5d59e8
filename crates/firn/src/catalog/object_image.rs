//! Keys and values of the catalog's entries for the server: images of its objects, and how tables
//! are partitioned.

use super::CATALOG_INDEX;
use crate::base::key::index_prefix;
use crate::base::{Error, Kind, Result, Value};
use crate::write::Batch;
use std::sync::Arc;

pub(super) const OBJECT: u8 = 3;
pub(super) const PARTITIONING: u8 = 4;

/// Format of the stored values.
const FORMAT: u8 = 1;

/// The kind of a server object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ServerObjectKind {
    /// Rows of a table of users and privileges.
    Privileges = 1,
    /// A stored routine.
    Routine = 2,
    /// A scheduled event.
    Event = 3,
    /// A view.
    View = 4,
    /// The triggers of a table.
    Triggers = 5,
    /// The options of a database.
    Database = 6,
}

impl ServerObjectKind {
    pub(super) fn from_u8(byte: u8) -> Result<Self> {
        Ok(match byte {
            1 => Self::Privileges,
            2 => Self::Routine,
            3 => Self::Event,
            4 => Self::View,
            5 => Self::Triggers,
            6 => Self::Database,
            other => return Err(Error::unsupported(format!("server object kind {other}"))),
        })
    }
}

/// An image, as the server gave it.
pub type ObjectImage = Arc<[u8]>;

fn key(tag: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = index_prefix(CATALOG_INDEX).to_vec();
    key.push(tag);
    rest.iter().for_each(|part| key.extend_from_slice(part));
    key
}

pub(super) fn object_key(kind: ServerObjectKind, name: &str) -> Vec<u8> {
    key(OBJECT, &[&[kind as u8], name.as_bytes()])
}

pub(super) fn partitioning_key(table: &str) -> Vec<u8> {
    key(PARTITIONING, &[table.as_bytes()])
}

pub(super) fn put(batch: &mut Batch, key: &[u8], image: &[u8]) {
    let value = [&[FORMAT][..], image].concat();
    batch.add(key, Kind::Put, Value::whole(&value));
}

pub(super) fn image(value: &[u8]) -> Result<ObjectImage> {
    match value.split_first() {
        Some((&FORMAT, image)) => Ok(image.into()),
        Some((other, _)) => Err(Error::unsupported(format!("catalog entry format {other}"))),
        None => Err(Error::corruption("", 0, "catalog entry without a value")),
    }
}

pub(super) fn name(bytes: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(bytes);
    let name = name.map_err(|_| Error::corruption("", 0, "catalog name is not UTF-8"))?;
    Ok(name.to_owned())
}
