//! The part of a table's definition that determines the bytes of rows and keys.
//!
//! The server passes a definition each time it opens a table, and the catalog keeps the definition
//! with which the table was created. [`TableSchema::difference`] checks that both give the same
//! bytes. Then codecs are made from the server's definition, since only that can compute collation
//! weights.

mod change;
mod compare;
mod encoding;

pub use change::{SchemaChange, VERSIONS_MAX};
pub use compare::Difference;

use crate::base::{Error, Result};
use crate::keycode::{
    Collation, CollationSpec, Collator, IndexCodec, KeyCodec, KeyPart, KeyPrefixExtractor,
    NoCollator, PartKind, PartSource,
};
use crate::rowcode::{Column, ColumnKind, RowFormat, RowLayout, RowVersion};
use std::sync::Arc;

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSchema {
    /// Name, for messages; no stored bytes depend on it.
    pub name: String,
    /// The server's type number, for messages and comparison.
    pub type_code: u32,
    /// Number of characters of a CHAR column; otherwise 0.
    pub chars: u32,
    /// Checksum of the attributes by which the server interprets the bytes of a value: sign, number
    /// of decimals, character set, members of ENUM or SET; 0 if unknown. Only comparisons of
    /// definitions use it; no stored bytes depend on it.
    pub interpretation: u32,
    /// Position and encoding in row and record.
    pub column: Column,
}

/// The collation of a text part. A definition from the catalog has no collator.
#[derive(Debug, Clone)]
pub struct CollationSchema {
    /// The properties of the collation that the bytes of keys depend on.
    pub spec: CollationSpec,
    /// Computes the weights.
    pub collator: Option<Arc<dyn Collator>>,
}

/// The collations of the host.
pub trait Collations: Send + Sync {
    /// The collation with the host's number `id`.
    fn find(&self, id: u32) -> Option<CollationSchema>;
}

/// How the values of a key part are encoded and compared.
#[derive(Debug, Clone)]
pub enum PartSchema {
    /// An integer.
    Int {
        /// Whether it has a sign.
        signed: bool,
    },
    /// FLOAT or DOUBLE.
    Float,
    /// Byte strings that all have the same length. Their bytes are stored in the key as they are,
    /// since they sort as the values do.
    Fixed,
    /// Binary strings of any length.
    VarBytes,
    /// Text.
    Text(CollationSchema),
}

/// A key part.
#[derive(Debug, Clone)]
pub struct IndexPart {
    /// Position of the column in [`TableSchema::columns`].
    pub column: u32,
    /// Encoding of the values in the key.
    pub kind: PartSchema,
    /// Whether larger values come first.
    pub desc: bool,
    /// For a prefix part: its length in characters (text) or bytes.
    pub prefix: Option<u32>,
    /// Number of bytes of the value in the server's key image, without the NULL byte and the length
    /// bytes before it.
    pub image_len: u32,
}

/// An index.
#[derive(Debug, Clone)]
pub struct IndexSchema {
    /// Name of the index.
    pub name: String,
    /// Whether no two rows may agree in all parts, unless one part is NULL.
    pub unique: bool,
    /// The declared parts, which are those that the definition of the index names; at least one.
    pub parts: Vec<IndexPart>,
}

/// How transactions that change the same rows of the table are kept from overwriting each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableLocking {
    /// Transactions lock rows before they change them, and wait for each other.
    #[default]
    Pessimistic,
    /// Transactions lock nothing. A commit fails if another transaction has changed the same rows
    /// and committed first.
    Optimistic,
}

/// The definition of a table.
#[derive(Debug, Clone)]
pub struct TableSchema {
    /// Version of the row format, with which rows are written; 1 at creation.
    pub version: u32,
    /// The versions with which older rows of the table may have been written, newest first.
    pub older: Arc<[RowVersion]>,
    /// Length of the record buffer, bytes.
    pub record_len: u32,
    /// Length of the NULL bits at the start of the record buffer, bytes.
    pub null_bytes: u32,
    /// The columns.
    pub columns: Vec<ColumnSchema>,
    /// The indexes, in the server's order.
    pub indexes: Vec<IndexSchema>,
    /// Number of the primary index; `None` if the primary key is hidden.
    pub primary: Option<u32>,
    /// Position of the AUTO_INCREMENT column.
    pub auto_increment: Option<u32>,
    /// Whether transactions lock rows of the table before they change them. No stored bytes depend
    /// on it.
    pub locking: TableLocking,
}

impl TableSchema {
    /// Checks the definition by building the row layout, and the codecs of indexes whose collators
    /// are present.
    ///
    /// # Errors
    /// `InvalidArgument`; the message names the column or index.
    pub fn check(&self) -> Result<()> {
        self.row_format()?;
        if let Some(primary) = self.primary {
            let index = self
                .indexes
                .get(primary as usize)
                .ok_or_else(|| Error::invalid("the primary key is no index"))?;
            for part in &index.parts {
                let column = &self.column_of(part)?.column;
                if column.null.is_some() || !column.stored {
                    return Err(Error::invalid(
                        "a column of the primary key may be NULL or is virtual",
                    ));
                }
            }
        }
        let columns = self.columns.len() as u32;
        if self.auto_increment.is_some_and(|column| column >= columns) {
            return Err(Error::invalid("the AUTO_INCREMENT column is no column"));
        }
        for index in &self.indexes {
            for part in &index.parts {
                self.column_of(part)?;
            }
            if index.parts.iter().all(IndexPart::has_collator) {
                self.key_codec(index)?;
            }
        }
        Ok(())
    }

    /// A copy of the definition, which may come from the catalog, in which each missing collator is
    /// replaced by a stand-in. The copy can do all that needs no collation weights, such as finding
    /// the ends of parts in a stored key.
    pub fn with_any_collator(&self) -> Self {
        let mut schema = self.clone();
        let parts = schema.indexes.iter_mut().flat_map(|index| &mut index.parts);
        parts.for_each(IndexPart::stand_in);
        schema
    }

    /// A copy of a stored definition with the collations of the host.
    pub(super) fn with_collations(&self, host: Option<&dyn Collations>) -> Result<Self> {
        let mut schema = self.clone();
        let parts = schema.indexes.iter_mut().flat_map(|index| &mut index.parts);
        for part in parts {
            if let PartSchema::Text(collation) = &mut part.kind
                && collation.collator.is_none()
            {
                let found = host.and_then(|host| host.find(collation.spec.id));
                let same = found.filter(|found| compare::same_format(&found.spec, &collation.spec));
                *collation = same.ok_or_else(|| {
                    let name = &collation.spec.name;
                    Error::unsupported(format_args!("collation {name} is not as it was"))
                })?;
            }
        }
        Ok(schema)
    }

    /// A codec for the first `parts` parts of the keys in index `number`. It only finds the ends of
    /// parts: without collators it cannot encode text.
    ///
    /// # Errors
    /// `InvalidArgument` if the index has fewer parts.
    pub fn leading_key_codec(&self, number: usize, parts: usize) -> Result<KeyCodec> {
        let mut all = self.entry_parts(number).into_iter().cloned();
        let mut leading: Vec<IndexPart> = all.by_ref().take(parts).collect();
        if leading.len() < parts {
            return Err(Error::invalid("an index with fewer parts"));
        }
        leading.iter_mut().for_each(IndexPart::stand_in);
        let leading = leading.iter().map(|part| self.key_part(part));
        KeyCodec::new(self.record_len, leading.collect::<Result<_>>()?)
    }

    /// The layout of rows of this version.
    ///
    /// # Errors
    /// `InvalidArgument` if a column lies outside the record.
    pub fn row_layout(&self) -> Result<RowLayout> {
        let columns = self.columns.iter().map(|c| c.column.clone()).collect();
        RowLayout::new(self.version, self.record_len, columns)
    }

    /// The row format that reads rows of this version and of all older versions.
    ///
    /// # Errors
    /// Those of [`RowFormat::new`]: `InvalidArgument`, `Unsupported`.
    pub fn row_format(&self) -> Result<RowFormat> {
        RowFormat::new(self.row_layout()?, Arc::clone(&self.older))
    }

    /// The codecs of all indexes, in order.
    ///
    /// # Errors
    /// `InvalidArgument` if the definition came from the catalog and has text parts.
    pub fn index_codecs(&self) -> Result<Vec<IndexCodec>> {
        let keys = self
            .indexes
            .iter()
            .map(|index| self.key_codec(index))
            .collect::<Result<Vec<_>>>()?;
        let primary = self.primary.map(|i| keys[i as usize].clone());
        let codecs = keys.into_iter().enumerate().map(|(i, key)| {
            if self.primary == Some(i as u32) {
                IndexCodec::primary(self.record_len, key)
            } else {
                IndexCodec::secondary(self.record_len, key, primary.clone())
            }
        });
        Ok(codecs.collect())
    }

    /// An extractor that finds where the parts of a key of index number `index` end. Needs no
    /// collators.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such index.
    pub fn key_prefix_extractor(&self, index: usize) -> Result<KeyPrefixExtractor> {
        let schema = self
            .indexes
            .get(index)
            .ok_or_else(|| Error::invalid("no such index"))?;
        let mut parts = schema.parts.clone();
        parts.iter_mut().for_each(IndexPart::stand_in);
        let parts: Vec<KeyPart> = parts
            .iter()
            .map(|part| self.key_part(part))
            .collect::<Result<_>>()?;
        let nullable = parts.iter().any(|part| part.null.is_some());
        let codec = KeyCodec::new(self.record_len, parts)?;
        Ok(KeyPrefixExtractor::new(codec, schema.unique && !nullable))
    }

    fn key_codec(&self, index: &IndexSchema) -> Result<KeyCodec> {
        let parts = index
            .parts
            .iter()
            .map(|part| self.key_part(part))
            .collect::<Result<Vec<_>>>();
        parts
            .and_then(|parts| KeyCodec::new(self.record_len, parts))
            .map_err(|error| {
                Error::invalid(format_args!("index {}: {}", index.name, error.message()))
            })
    }

    fn column_of(&self, part: &IndexPart) -> Result<&ColumnSchema> {
        self.columns
            .get(part.column as usize)
            .ok_or_else(|| Error::invalid("an index part on no column"))
    }

    fn key_part(&self, part: &IndexPart) -> Result<KeyPart> {
        let of = self.column_of(part)?;
        let (source, len) = match of.column.kind {
            ColumnKind::Fixed { len } => (PartSource::Fixed, len),
            ColumnKind::Char { len, .. } => (PartSource::Char { chars: of.chars }, len),
            ColumnKind::VarChar { len_bytes, max } => (PartSource::VarChar { len_bytes }, max),
            ColumnKind::Blob { len_bytes } => (PartSource::Blob { len_bytes }, 0),
        };
        let kind = match &part.kind {
            PartSchema::Int { signed } => PartKind::Int { signed: *signed },
            PartSchema::Float => PartKind::Float,
            PartSchema::Fixed => PartKind::Fixed,
            PartSchema::VarBytes => PartKind::VarBytes,
            PartSchema::Text(CollationSchema { spec, collator }) => {
                let collator = collator
                    .clone()
                    .ok_or_else(|| Error::invalid("a text part without collator"))?;
                PartKind::Text(Arc::new(Collation::new(spec.clone(), collator)?))
            }
        };
        Ok(KeyPart {
            column: part.column,
            kind,
            source,
            offset: of.column.offset,
            len,
            null: of.column.null,
            desc: part.desc,
            prefix: part.prefix,
            image_len: part.image_len,
        })
    }

    /// Encodes the definition for the catalog.
    pub fn to_bytes(&self) -> Vec<u8> {
        encoding::encode(self)
    }

    /// Decodes a definition from the catalog.
    ///
    /// # Errors
    /// `Corruption`, without file name; `Unsupported` for a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        encoding::decode(bytes)
    }
}

impl IndexPart {
    /// If this is a text part without a collator, gives it a stand-in that cannot compute weights.
    fn stand_in(&mut self) {
        if let PartSchema::Text(collation) = &mut self.kind {
            collation
                .collator
                .get_or_insert_with(|| Arc::new(NoCollator));
        }
    }

    /// Whether keys of the part can be computed.
    pub fn has_collator(&self) -> bool {
        match &self.kind {
            PartSchema::Text(collation) => collation.collator.is_some(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
