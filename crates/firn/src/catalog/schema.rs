//! The definition of a table as far as the store needs it: how rows and keys look.
//!
//! A definition comes from the server with each open and is kept in the catalog from the creation
//! on. Codecs are made from the one that came, since only it can compute collation weights, after
//! [`TableSchema::difference`] found that rows and keys of both are the same bytes.

mod compare;
mod wire;

pub use compare::Difference;

use crate::base::{Error, Result};
use crate::keycode::{
    Collation, CollationSpec, Collator, IndexCodec, KeyCodec, KeyEnds, KeyPart, PartKind, Source,
    Weightless,
};
use crate::rowcode::{Column, ColumnKind, Missing, RowFormat, RowLayout};
use std::sync::Arc;

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSchema {
    /// Its name, for messages: renaming a column changes nothing that is stored.
    pub name: String,
    /// The server's number of its type, for messages and comparison.
    pub type_code: u32,
    /// Characters, for CHAR; otherwise 0.
    pub chars: u32,
    /// Its place in row and record.
    pub column: Column,
}

/// The collation of a text part. The collator is missing in a definition read from the catalog.
#[derive(Debug, Clone)]
pub struct CollationSchema {
    /// The description.
    pub spec: CollationSpec,
    /// Where the weights come from.
    pub collator: Option<Arc<dyn Collator>>,
}

/// How values of a key part compare.
#[derive(Debug, Clone)]
pub enum PartSchema {
    /// An integer.
    Int {
        /// Whether it has a sign.
        signed: bool,
    },
    /// FLOAT or DOUBLE.
    Float,
    /// Bytes of one length that sort as they are.
    Fixed,
    /// Binary strings.
    VarBytes,
    /// Text.
    Text(CollationSchema),
}

/// A key part.
#[derive(Debug, Clone)]
pub struct IndexPart {
    /// Position of the column in [`TableSchema::columns`].
    pub column: u32,
    /// How values compare.
    pub kind: PartSchema,
    /// Whether larger values come first.
    pub desc: bool,
    /// For a prefix part: characters (text) or bytes that count.
    pub prefix: Option<u32>,
    /// Bytes of the value in the server's key image, without NULL byte and length.
    pub image_len: u32,
}

/// An index.
#[derive(Debug, Clone)]
pub struct IndexSchema {
    /// Its name.
    pub name: String,
    /// Whether two rows may not agree in all parts (unless one is NULL).
    pub unique: bool,
    /// Its parts, at least one.
    pub parts: Vec<IndexPart>,
}

/// The definition of a table.
#[derive(Debug, Clone)]
pub struct TableSchema {
    /// Version of the row format; 1 at creation.
    pub version: u32,
    /// Bytes of the record buffer.
    pub record_len: u32,
    /// Bytes at the start of the record buffer that hold NULL bits.
    pub null_bytes: u32,
    /// The columns.
    pub columns: Vec<ColumnSchema>,
    /// The indexes, in the server's order.
    pub indexes: Vec<IndexSchema>,
    /// Which index is the primary one; None if the primary key is hidden.
    pub primary: Option<u32>,
    /// Position of the AUTO_INCREMENT column.
    pub auto_increment: Option<u32>,
}

impl TableSchema {
    /// Checks that the definition makes sense, by making the layout and, where there are collators,
    /// the codecs.
    ///
    /// # Errors
    /// `InvalidArgument`, with words that name the column or index.
    pub fn check(&self) -> Result<()> {
        self.row_layout()?;
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

    /// The same with a stand-in for each collator that is missing: what needs no weights, such as
    /// finding where the parts of a stored key end, works with a definition read from the catalog.
    pub fn with_any_collator(&self) -> Self {
        let mut schema = self.clone();
        let parts = schema.indexes.iter_mut().flat_map(|index| &mut index.parts);
        parts.for_each(IndexPart::stand_in);
        schema
    }

    /// The layout of rows of this version.
    ///
    /// # Errors
    /// `InvalidArgument` if a column lies outside the record.
    pub fn row_layout(&self) -> Result<RowLayout> {
        let columns = self.columns.iter().map(|c| c.column.clone()).collect();
        RowLayout::new(self.version, self.record_len, columns)
    }

    /// The row format: this version and `older` ones.
    ///
    /// # Errors
    /// As for [`RowFormat::new`].
    pub fn row_format(&self, older: &[TableSchema]) -> Result<RowFormat> {
        let older = older.iter().map(Self::row_layout).collect::<Result<_>>()?;
        RowFormat::new(self.row_layout()?, older)
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

    /// Where the parts of the keys of index number `index` end. Needs no collators.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such index.
    pub fn key_ends(&self, index: usize) -> Result<KeyEnds> {
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
        Ok(KeyEnds::new(codec, schema.unique && !nullable))
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
            ColumnKind::Fixed { len } => (Source::Fixed, len),
            ColumnKind::Char { len, .. } => (Source::Char { chars: of.chars }, len),
            ColumnKind::VarChar { len_bytes, max } => (Source::VarChar { len_bytes }, max),
            ColumnKind::Blob { len_bytes } => (Source::Blob { len_bytes }, 0),
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

    /// The definition as the catalog keeps it.
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::encode(self)
    }

    /// Reads a definition as the catalog keeps it.
    ///
    /// # Errors
    /// `Corruption`, without file name; `Unsupported` for a newer format.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        wire::decode(bytes)
    }
}

impl ColumnSchema {
    /// A column of a new table: no row lacks it.
    pub fn is_original(&self) -> bool {
        self.column.missing == Missing::Impossible
    }
}

impl IndexPart {
    /// Gives a part of text without collator one that computes nothing.
    fn stand_in(&mut self) {
        if let PartSchema::Text(collation) = &mut self.kind {
            collation
                .collator
                .get_or_insert_with(|| Arc::new(Weightless));
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
