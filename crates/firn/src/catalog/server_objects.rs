//! Images that the catalog keeps for the server beside tables: objects that live outside of the
//! engine, and how tables are partitioned. A server that reads the store without the writer's files
//! recreates the objects from them.

use super::CATALOG_INDEX;
use super::tables::{Catalog, CatalogState};
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
    fn from_u8(byte: u8) -> Result<Self> {
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

fn object_key(kind: ServerObjectKind, name: &str) -> Vec<u8> {
    key(OBJECT, &[&[kind as u8], name.as_bytes()])
}

fn partitioning_key(table: &str) -> Vec<u8> {
    key(PARTITIONING, &[table.as_bytes()])
}

fn put(batch: &mut Batch, key: &[u8], image: &[u8]) {
    let value = [&[FORMAT][..], image].concat();
    batch.add(key, Kind::Put, Value::whole(&value));
}

fn image(value: &[u8]) -> Result<ObjectImage> {
    match value.split_first() {
        Some((&FORMAT, image)) => Ok(image.into()),
        Some((other, _)) => Err(Error::unsupported(format!("catalog entry format {other}"))),
        None => Err(Error::corruption("", 0, "catalog entry without a value")),
    }
}

fn name(bytes: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(bytes);
    let name = name.map_err(|_| Error::corruption("", 0, "catalog name is not UTF-8"))?;
    Ok(name.to_owned())
}

impl CatalogState {
    /// Adds the entry of an object; `rest` is the key behind the tag.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format or kind.
    pub(super) fn add_object(&mut self, rest: &[u8], value: &[u8]) -> Result<()> {
        let (kind, rest) = rest
            .split_first()
            .ok_or_else(|| Error::corruption("", 0, "server object without a kind"))?;
        let kind = ServerObjectKind::from_u8(*kind)?;
        self.objects.insert((kind, name(rest)?), image(value)?);
        Ok(())
    }

    /// Adds the entry of a table's partitioning; `rest` is the key behind the tag.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format.
    pub(super) fn add_partitioning(&mut self, rest: &[u8], value: &[u8]) -> Result<()> {
        self.partitionings.insert(name(rest)?, image(value)?);
        Ok(())
    }
}

impl Catalog {
    /// All objects of the server, by kind and name, with their images.
    pub fn objects(&self) -> Vec<((ServerObjectKind, String), ObjectImage)> {
        let known = self.entries().read();
        let all = known.objects.iter();
        all.map(|(object, image)| (object.clone(), Arc::clone(image)))
            .collect()
    }

    /// Stores the image of a server object, or deletes it without an image. Durable on return.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn set_object(
        &self,
        kind: ServerObjectKind,
        name: &str,
        image: Option<&[u8]>,
    ) -> Result<()> {
        let _one = self.changing().lock();
        let (mut batch, key) = (Batch::new(), object_key(kind, name));
        match image {
            Some(image) => put(&mut batch, &key, image),
            None => batch.add(&key, Kind::Delete, Value::EMPTY),
        }
        self.write(&batch, &format!("server object {name}"))?;
        let (mut known, object) = (self.entries().write(), (kind, name.to_owned()));
        match image {
            Some(image) => known.objects.insert(object, image.into()),
            None => known.objects.remove(&object),
        };
        Ok(())
    }

    /// The partitioning of `table`: the content of the server's `.par` file.
    pub fn partitioning(&self, table: &str) -> Option<ObjectImage> {
        self.entries().read().partitionings.get(table).cloned()
    }

    /// Names of the tables with a stored partitioning.
    pub fn partitioned(&self) -> Vec<String> {
        self.entries()
            .read()
            .partitionings
            .keys()
            .cloned()
            .collect()
    }

    /// Stores the content of a table's `.par` file, or deletes it. Durable on return.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn set_partitioning(&self, table: &str, par: Option<&[u8]>) -> Result<()> {
        let _one = self.changing().lock();
        let (mut batch, key) = (Batch::new(), partitioning_key(table));
        match par {
            Some(par) => put(&mut batch, &key, par),
            None => batch.add(&key, Kind::Delete, Value::EMPTY),
        }
        self.write(&batch, &format!("partition table {table}"))?;
        let mut known = self.entries().write();
        match par {
            Some(par) => known.partitionings.insert(table.to_owned(), par.into()),
            None => known.partitionings.remove(table),
        };
        Ok(())
    }

    /// Moves the partitioning of `from` to `to` in one commit. Durable on return.
    ///
    /// # Errors
    /// `NotFound` if `from` has none; those of a commit (`NoSpace`, `Poisoned`, `ShutDown`, `Io`).
    pub fn rename_partitioning(&self, from: &str, to: &str) -> Result<()> {
        let _one = self.changing().lock();
        let par = self.partitioning(from).ok_or_else(|| {
            let message = format!("no partitions are known of table {from}");
            Error::new(crate::base::ErrorKind::NotFound, message)
        })?;
        let mut batch = Batch::new();
        let (old, new) = (partitioning_key(from), partitioning_key(to));
        if old != new {
            batch.add(&old, Kind::Delete, Value::EMPTY);
        }
        put(&mut batch, &new, &par);
        self.write(&batch, &format!("rename the partitions of {from} to {to}"))?;
        let mut known = self.entries().write();
        known.partitionings.remove(from);
        known.partitionings.insert(to.to_owned(), par);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
