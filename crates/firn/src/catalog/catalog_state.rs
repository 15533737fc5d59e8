//! All that the catalog says at one read point.

use super::CATALOG_INDEX;
use super::foreign_key::{ForeignKey, database_of, is_copy};
use super::foreign_key_references::{References, id_of};
use super::index_owners::{IndexOwner, IndexOwners};
use super::object_image::{self, OBJECT, ObjectImage, PARTITIONING, ServerObjectKind};
use super::table_entry::TableEntry;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::key_range::prefix_successor;
use crate::base::{Error, IndexId, Result, Seqno, invariant};
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ReadPoint, ScanRange, scan_sources};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const TABLE: u8 = 1;
pub(super) const RETIRED: u8 = 2;

/// The contents of the catalog at one read point.
#[derive(Debug, Clone, Default)]
pub struct CatalogState {
    /// Tables by name. Only `insert_table` and `take_table` change this map, because they also
    /// change `owners` and the copies in `references`.
    pub tables: BTreeMap<String, Arc<TableEntry>>,
    /// Retired indexes of which files may still hold entries, with the seqno of their retirement.
    pub retired: BTreeMap<IndexId, Seqno>,
    /// Images of server objects, by kind and name.
    pub objects: BTreeMap<(ServerObjectKind, String), ObjectImage>,
    /// The server's `.par` images, by table.
    pub partitionings: BTreeMap<String, ObjectImage>,
    pub(super) owners: IndexOwners,
    /// Which tables refer to which.
    pub(super) references: References,
}

impl CatalogState {
    /// Reads the catalog at `point`.
    ///
    /// # Errors
    /// `Corruption` of an entry, or of the files that hold it; `Unsupported` for newer formats;
    /// `Io`.
    pub fn read(point: &ReadPoint) -> Result<Self> {
        let lower = index_prefix(CATALOG_INDEX).to_vec();
        let range = ScanRange {
            upper: prefix_successor(&lower),
            lower,
        };
        let merged = MergeIter::new(scan_sources(
            &point.super_version,
            &range,
            ReadClass::Range,
            None,
        ));
        let mut entries = MvccIter::new(merged, ReadAt::snapshot(point.seqno));
        let mut known = Self::default();
        let mut found = entries.seek_ge(&range.lower)?;
        while found && entries.user_key().starts_with(&range.lower) {
            let key = &entries.user_key()[INDEX_ID_LEN..];
            known.add(key, entries.seqno(), entries.value().head)?;
            found = entries.next()?;
        }
        Ok(known)
    }

    /// Adds the catalog entry with `key`, which begins behind the index id of the catalog.
    ///
    /// # Errors
    /// `Corruption` of the entry; `Unsupported` for newer formats.
    pub fn add(&mut self, key: &[u8], seqno: Seqno, value: &[u8]) -> Result<()> {
        let damaged = |what: &str| Error::corruption("", 0, what);
        let (tag, rest) = key
            .split_first()
            .ok_or_else(|| damaged("catalog key without a tag"))?;
        match *tag {
            TABLE => {
                let name =
                    std::str::from_utf8(rest).map_err(|_| damaged("table name is not UTF-8"))?;
                let mut entry = TableEntry::decode(name, seqno, value)?;
                if !is_copy(name) {
                    // Older versions of the engine gave the foreign keys of a table to each table
                    // that CREATE TABLE … LIKE made from it, without ever checking them.
                    entry.foreign_keys.retain(|key| !key.inherited);
                }
                self.put_table(Arc::new(entry));
            }
            RETIRED => {
                let id = rest
                    .try_into()
                    .map_err(|_| damaged("retired index id is damaged"))?;
                self.retired.insert(IndexId::from_be_bytes(id), seqno);
            }
            OBJECT => self.add_object(rest, value)?,
            PARTITIONING => self.add_partitioning(rest, value)?,
            other => return Err(Error::unsupported(format!("catalog entry kind {other}"))),
        }
        Ok(())
    }

    /// The largest index id in the catalog.
    pub(super) fn largest_index(&self) -> IndexId {
        let live = self.tables.values().flat_map(|entry| entry.index_ids());
        live.chain(self.retired.keys().copied()).max().unwrap_or(0)
    }

    /// Adds the catalog entry of a server object. `rest` is the entry's key without the index id
    /// and the tag byte, which says what kind of catalog entry it is.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format or kind.
    fn add_object(&mut self, rest: &[u8], value: &[u8]) -> Result<()> {
        let (kind, rest) = rest
            .split_first()
            .ok_or_else(|| Error::corruption("", 0, "server object without a kind"))?;
        let kind = ServerObjectKind::from_u8(*kind)?;
        self.objects.insert(
            (kind, object_image::name(rest)?),
            object_image::image(value)?,
        );
        Ok(())
    }

    /// Adds the catalog entry of a table's partitioning. `rest` is the entry's key without the
    /// index id and the tag byte.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` for a newer format.
    fn add_partitioning(&mut self, rest: &[u8], value: &[u8]) -> Result<()> {
        self.partitionings
            .insert(object_image::name(rest)?, object_image::image(value)?);
        Ok(())
    }
}

impl CatalogState {
    /// Adds a table, or replaces the one of its name.
    pub(super) fn put_table(&mut self, entry: Arc<TableEntry>) {
        let name = entry.name.clone();
        let old = self.insert_table(&entry);
        if is_copy(&name) {
            self.references.change_swapped(&entry);
            return;
        }
        let swapped = self.references.end_swap(&name);
        if let Some(old) = old.or(swapped) {
            self.references.remove(&old);
        }
        self.references.add(&entry);
    }

    /// Removes a table.
    pub(super) fn remove_table(&mut self, name: &str) {
        let Some(entry) = self.take_table(name) else {
            return;
        };
        if !is_copy(name) {
            self.references.remove(&entry);
            return;
        }
        self.references.drop_swapped(entry.clustered.id);
    }

    /// Removes the table called `name` from `tables`, because a copying ALTER is about to give its
    /// name to another table. [`Self::swapped_out`] still finds the old table by the name.
    pub(super) fn swap_out(&mut self, name: &str) {
        if let Some(entry) = self.take_table(name) {
            self.references.swap_out(name, entry);
        }
    }

    /// The old table called `name`, between the two steps of a copying ALTER: it has lost the name,
    /// and the new table does not have it yet.
    pub fn swapped_out(&self, name: &str) -> Option<&Arc<TableEntry>> {
        self.references.swapped_out(name)
    }

    /// The table called `name`; while a copying ALTER replaces it, the old table.
    pub fn table_or_swapped(&self, name: &str) -> Option<&Arc<TableEntry>> {
        self.tables.get(name).or_else(|| self.swapped_out(name))
    }

    /// Makes [`Self::referencing`] forget the foreign keys of `entry`, because that table gets
    /// another name.
    pub(super) fn forget_references(&mut self, entry: &TableEntry) {
        self.references.remove(entry);
    }

    /// The foreign keys that refer to `parent`, in the order of their ids, each with the
    /// referencing table.
    pub fn referencing(&self, parent: &str) -> Vec<(Arc<TableEntry>, ForeignKey)> {
        let all = self
            .references
            .referencing(parent)
            .filter_map(|(id, child)| {
                let child = self.table_or_swapped(child)?;
                let mut keys = child.foreign_keys.iter();
                let key =
                    keys.find(|key| key.parent == parent && id_of(&child.name, &key.name) == *id);
                Some((Arc::clone(child), key?.clone()))
            });
        all.collect()
    }

    /// The tables whose foreign keys refer to `parent`, each once and under its present name. A
    /// table that a copying ALTER has swapped out is here under the name that it has meanwhile, and
    /// the copies that are to replace such tables are here, too: DDL that changes the foreign keys
    /// must change all of them, since the host may rename any of them next.
    pub(super) fn referring_tables(&self, parent: &str) -> Vec<Arc<TableEntry>> {
        let children = self.references.referencing(parent).map(|(_, child)| child);
        let copies = self.references.copies_referencing(parent);
        let names: BTreeSet<&String> = children.chain(copies).collect();
        let tables = names.into_iter().filter_map(|name| self.tables.get(name));
        tables.cloned().collect()
    }

    /// Whether a foreign key of the database of `table` has `name`. Foreign keys that a copy of
    /// a table has inherited do not count.
    pub(super) fn is_foreign_key(&self, table: &str, name: &str) -> bool {
        let database = format!("{}/", database_of(table));
        let of_database = self
            .tables
            .range(database.clone()..)
            .take_while(|(table, _)| table.starts_with(&database));
        let mut keys = of_database.flat_map(|(_, entry)| &entry.foreign_keys);
        keys.any(|key| !key.inherited && key.name.eq_ignore_ascii_case(name))
    }
}

impl CatalogState {
    /// Puts `entry` into `tables` under its name. Returns the entry that had this name before.
    fn insert_table(&mut self, entry: &Arc<TableEntry>) -> Option<Arc<TableEntry>> {
        let old = self.tables.insert(entry.name.clone(), Arc::clone(entry));
        old.iter().for_each(|old| self.forget(old));
        self.owners.add(entry);
        if is_copy(&entry.name) {
            self.references.add_copy(entry);
        }
        old
    }

    /// Takes the table called `name` out of the catalog.
    pub(super) fn take_table(&mut self, name: &str) -> Option<Arc<TableEntry>> {
        let taken = self.tables.remove(name);
        taken.iter().for_each(|entry| self.forget(entry));
        taken
    }

    /// Forgets what the catalog derives from an entry that is no longer in `tables`, except the
    /// foreign keys of tables that are no copies.
    fn forget(&mut self, entry: &Arc<TableEntry>) {
        self.owners.remove(entry);
        if is_copy(&entry.name) {
            self.references.remove_copy(entry);
        }
    }

    /// The table that has `index`, and the index's number.
    pub(super) fn owner(&self, index: IndexId) -> Option<&IndexOwner> {
        self.owners.find(index)
    }

    /// If costly checks are enabled, panics unless `owners` has exactly the indexes of `tables`.
    pub(super) fn check_owners(&self) {
        if invariant::enabled() {
            let right = self.owners.are_of(self.tables.values());
            assert!(right, "the owners of indexes are not those of the tables");
        }
    }
}
