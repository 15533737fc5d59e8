//! The stored form of a table; `docs/formats/catalog.md` has the layout.

use super::foreign_key::{self, ForeignKey, ReferentialAction};
use super::foreign_key_index::same_name;
use super::schema::TableSchema;
use crate::base::varint::{put_bytes, put_u64, take_bytes, take_u8, take_u32, take_u64};
use crate::base::{Error, IndexId, Result, Seqno};

const FORMAT: u8 = 1;
/// Format in which fields with tags follow the creation time.
const FORMAT_WITH_FIELDS: u8 = 2;

/// Tag of the foreign keys.
const FOREIGN_KEYS: u8 = 1;
/// Tag of the original name.
const ORIGINAL: u8 = 2;

/// One index of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its id, never reused.
    pub id: IndexId,
    /// Seqno of the commit that created the index; older snapshots do not see the index.
    pub created: Seqno,
}

/// A table, as the catalog stores it.
#[derive(Debug, Clone)]
pub struct TableEntry {
    /// `database/table`, encoded as the server encodes file names.
    pub name: String,
    /// Columns and indexes.
    pub schema: TableSchema,
    /// The indexes, in the order of `schema.indexes`.
    pub indexes: Vec<IndexEntry>,
    /// The clustered index: one of `indexes`, or a separate one if the primary key is hidden.
    pub clustered: IndexEntry,
    /// The server's table definition image.
    pub frm: Vec<u8>,
    /// The server's version of the definition.
    pub version: Vec<u8>,
    /// Creation time, microseconds since 1970.
    pub created_micros: u64,
    /// Foreign keys of which this is the referencing table, by name.
    pub foreign_keys: Vec<ForeignKey>,
    /// Only for a table that a DDL statement is copying, replacing or exchanging; otherwise `None`.
    ///
    /// - In a copy (`#sql…`): the name that the table had before, or the name of the table that the
    ///   copy will replace. Empty once another table has taken that name for good.
    /// - In a table or partition that EXCHANGE PARTITION has put in the other's place: the name
    ///   that it had before the exchange.
    pub original: Option<String>,
}

impl TableEntry {
    /// All index ids, the clustered one first.
    pub fn index_ids(&self) -> Vec<IndexId> {
        let mut ids = vec![self.clustered.id];
        ids.extend(
            self.indexes
                .iter()
                .map(|i| i.id)
                .filter(|id| *id != self.clustered.id),
        );
        ids
    }

    /// Whether a cascade may update one of the columns called `columns` in this table, because a
    /// foreign key of the table contains the column and has an action that updates it: a cascading
    /// update, or SET NULL, which also follows the deletion of a referenced row. If one of
    /// `columns` is virtual, any such foreign key of the table counts, because the core does not
    /// know from which columns a virtual column is computed.
    pub fn cascades_change(&self, columns: &[&str]) -> bool {
        let updates = |key: &&ForeignKey| {
            key.on_update.changes_rows() || key.on_delete == ReferentialAction::SetNull
        };
        let mut changed = self.foreign_keys.iter().filter(updates);
        let is_virtual = |name: &&str| {
            let column = self.schema.find_column(name);
            column.is_some_and(|column| !self.schema.columns[column].column.stored)
        };
        if columns.iter().any(is_virtual) {
            return changed.next().is_some();
        }
        changed.any(|key| {
            let mut own = key.columns.iter();
            own.any(|own| columns.iter().any(|other| same_name(&own.name, other)))
        })
    }

    /// Encodes the entry without its name, which is the key. The commit that writes this entry
    /// creates the indexes in `new`. Its seqno is not known yet, so 0 is stored as their creation
    /// seqno, and [`Self::decode`] replaces 0 by the seqno of the entry.
    pub fn encode(&self, new: &[IndexId]) -> Vec<u8> {
        let plain = self.foreign_keys.is_empty() && self.original.is_none();
        let mut out = vec![if plain { FORMAT } else { FORMAT_WITH_FIELDS }];
        let put_index = |out: &mut Vec<u8>, index: &IndexEntry| {
            put_u64(out, u64::from(index.id));
            put_u64(
                out,
                if new.contains(&index.id) {
                    0
                } else {
                    index.created
                },
            );
        };
        put_index(&mut out, &self.clustered);
        put_u64(&mut out, self.indexes.len() as u64);
        self.indexes
            .iter()
            .for_each(|index| put_index(&mut out, index));
        put_bytes(&mut out, &self.schema.to_bytes());
        put_bytes(&mut out, &self.version);
        put_bytes(&mut out, &self.frm);
        put_u64(&mut out, self.created_micros);
        if !self.foreign_keys.is_empty() {
            out.push(FOREIGN_KEYS);
            put_bytes(&mut out, &foreign_key::encode(&self.foreign_keys));
        }
        if let Some(original) = &self.original {
            out.push(ORIGINAL);
            put_bytes(&mut out, original.as_bytes());
        }
        out
    }

    /// Decodes an entry found under `name` with `seqno`.
    ///
    /// # Errors
    /// `Corruption`, without file name; `Unsupported` for a newer format.
    pub fn decode(name: &str, seqno: Seqno, bytes: &[u8]) -> Result<Self> {
        let mut input = bytes;
        Self::take(name, seqno, &mut input).and_then(|entry| {
            if input.is_empty() {
                Ok(entry)
            } else {
                Err(damaged(name))
            }
        })
    }

    fn take(name: &str, seqno: Seqno, input: &mut &[u8]) -> Result<Self> {
        let bad = || damaged(name);
        let has_fields = match take_u8(input).ok_or_else(bad)? {
            FORMAT => false,
            FORMAT_WITH_FIELDS => true,
            other => return Err(Error::unsupported(format!("catalog entry format {other}"))),
        };
        let index = |input: &mut &[u8]| {
            let id = take_u32(input)?;
            let created = take_u64(input)?;
            Some(IndexEntry {
                id,
                created: if created == 0 { seqno } else { created },
            })
        };
        let clustered = index(input).ok_or_else(bad)?;
        let count = take_u32(input).ok_or_else(bad)?;
        let mut indexes = Vec::new();
        for _ in 0..count {
            indexes.push(index(input).ok_or_else(bad)?);
        }
        let schema = TableSchema::from_bytes(take_bytes(input).ok_or_else(bad)?)?;
        let version = take_bytes(input).ok_or_else(bad)?.to_vec();
        let frm = take_bytes(input).ok_or_else(bad)?.to_vec();
        let created_micros = take_u64(input).ok_or_else(bad)?;
        if schema.indexes.len() != indexes.len() {
            return Err(bad());
        }
        let mut foreign_keys = Vec::new();
        let mut original = None;
        while has_fields && !input.is_empty() {
            let tag = take_u8(input).ok_or_else(bad)?;
            let field = take_bytes(input).ok_or_else(bad)?;
            match tag {
                FOREIGN_KEYS => foreign_keys = foreign_key::decode(field).ok_or_else(bad)?,
                ORIGINAL => {
                    original = Some(String::from_utf8(field.to_vec()).map_err(|_| bad())?);
                }
                other => return Err(Error::unsupported(format!("catalog entry field {other}"))),
            }
        }
        let name = name.to_owned();
        Ok(Self {
            name,
            schema,
            indexes,
            clustered,
            frm,
            version,
            created_micros,
            foreign_keys,
            original,
        })
    }
}

fn damaged(name: &str) -> Error {
    Error::corruption("", 0, format_args!("catalog entry of {name} is damaged"))
}
