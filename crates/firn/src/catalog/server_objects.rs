//! Images that the catalog keeps for the server beside tables: objects that live outside of the
//! engine, and how tables are partitioned. Another server, which has the store but not the files of
//! the server that wrote it, recreates the objects from these images.

use super::object_image::{ObjectImage, ServerObjectKind, object_key, partitioning_key, put};
use super::tables::Catalog;
use crate::base::{Error, Kind, Result, Value};
use crate::write::Batch;
use std::sync::Arc;

impl Catalog {
    /// All objects of the server, by kind and name, with their images.
    pub fn objects(&self) -> Vec<((ServerObjectKind, String), ObjectImage)> {
        let known = self.entries().read();
        let all = known.objects.iter();
        all.map(|(object, image)| (object.clone(), Arc::clone(image)))
            .collect()
    }

    /// Stores the image of a server object; with `None`, deletes the stored image. Durable on
    /// return.
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

    /// Stores the content of a table's `.par` file; with `None`, deletes the stored content.
    /// Durable on return.
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
