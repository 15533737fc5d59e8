//! Table definitions as they cross the C ABI, and their conversion.
//!
//! The definition is read during the call that gets it; nothing of it is kept but the callbacks of
//! [`firn_collator`] and the `handle` of each collation, which must live as long as the table is
//! open.

use firn::base::record_buffer::{NullBit, Pad};
use firn::base::{Error, Result};
use firn::catalog::schema::{
    CollationSchema, ColumnSchema, IndexPart, IndexSchema, PartSchema, TableLocking, TableSchema,
};
use firn::keycode::{CollationLevel, CollationSpec, TextForm};
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

mod collator;

pub use collator::{firn_collator, firn_text_key};

/// Stands for no position.
pub const FIRN_NONE: u32 = u32::MAX;

/// A column of fixed length: the record buffer holds the value's bytes as they are.
pub const FIRN_COLUMN_FIXED: u32 = 0;
/// Text padded to the length of the column.
pub const FIRN_COLUMN_CHAR: u32 = 1;
/// A VARCHAR: the record buffer holds a length of 1 or 2 bytes, then the bytes of the value.
pub const FIRN_COLUMN_VARCHAR: u32 = 2;
/// A BLOB or TEXT: the record buffer holds a length of 1 to 4 bytes, then a pointer to the bytes of
/// the value.
pub const FIRN_COLUMN_BLOB: u32 = 3;

/// An integer with a sign, little-endian.
pub const FIRN_PART_INT: u32 = 0;
/// An integer without a sign, little-endian.
pub const FIRN_PART_UINT: u32 = 1;
/// FLOAT or DOUBLE.
pub const FIRN_PART_FLOAT: u32 = 2;
/// Bytes of a fixed length that sort like the values.
pub const FIRN_PART_FIXED: u32 = 3;
/// Binary strings of any length.
pub const FIRN_PART_VARBYTES: u32 = 4;
/// Text with a collation.
pub const FIRN_PART_TEXT: u32 = 5;

/// The text cannot be decoded from its weights.
pub const FIRN_TEXT_LOST: u32 = 0;
/// The weights are the bytes of the text.
pub const FIRN_TEXT_BYTES: u32 = 1;
/// The weights are the code points of UTF-8 text.
pub const FIRN_TEXT_UTF8: u32 = 2;

/// Most levels of a collation.
pub const FIRN_LEVELS_MAX: usize = 6;

/// A column of the record buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct firn_column {
    /// Its name, UTF-8.
    pub name: *const c_char,
    /// `FIRN_COLUMN_…`.
    pub kind: u32,
    /// The server's number of its type.
    pub type_code: u32,
    /// Where it starts in the record buffer.
    pub offset: u32,
    /// Bytes of a fixed or CHAR column; the largest number of bytes of a VARCHAR value; 0 for a
    /// blob.
    pub len: u32,
    /// Bytes of the length of a VARCHAR or blob.
    pub len_bytes: u32,
    /// Characters of a CHAR column.
    pub chars: u32,
    /// Checksum of the attributes by which the server interprets the bytes of a value: sign,
    /// decimals, character set, members. 0: unknown.
    pub interpretation: u32,
    /// Byte of the record buffer with its NULL bit.
    pub null_offset: u32,
    /// The NULL bit; 0 if it is NOT NULL.
    pub null_mask: u8,
    /// False for virtual columns.
    pub stored: bool,
    /// Bytes of one space of a CHAR column: 1, 2 or 4.
    pub pad_len: u8,
    /// One space of a CHAR column.
    pub pad: [u8; 4],
}

/// One level of a collation.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct firn_level {
    /// The level's number in calls of the callback.
    pub number: u32,
    /// Weight of a space.
    pub space: u32,
    /// Whether this level compares strings of different length without padding: a string is smaller
    /// than a longer one that begins with it. Otherwise the shorter string compares as if spaces
    /// followed.
    pub no_pad: bool,
}

/// A collation.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct firn_collation {
    /// The server's number for it.
    pub id: u32,
    /// The server's name for it.
    pub name: *const c_char,
    /// Passed to the callbacks.
    pub handle: *const c_void,
    /// Its levels.
    pub levels: [firn_level; FIRN_LEVELS_MAX],
    /// How many there are.
    pub level_count: u32,
    /// Bytes of one weight: 1, 2 or 3.
    pub weight_len: u32,
    /// `FIRN_TEXT_…`.
    pub form: u32,
    /// Length of `simple`: 0, 128 or 256.
    pub simple_len: u32,
    /// Weights of single bytes. The core weighs text that consists of bytes below `simple_len` with
    /// this table, without a callback.
    pub simple: [u8; 256],
    /// Whether CHAR is compared with its padding.
    pub char_filled: bool,
    /// Bytes of one space: 1, 2 or 4.
    pub pad_len: u8,
    /// One space.
    pub pad: [u8; 4],
}

/// A part of an index.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct firn_key_part {
    /// Position of the column.
    pub column: u32,
    /// `FIRN_PART_…`.
    pub kind: u32,
    /// For an index over a prefix of the column: the length of the prefix, in characters if the
    /// column is text, otherwise in bytes; 0 for the whole column.
    pub prefix: u32,
    /// Bytes of the value in a key image. The NULL byte and the length bytes in front of the value
    /// do not count.
    pub image_len: u32,
    /// Whether larger values come first.
    pub desc: bool,
    /// The collation of a text part.
    pub collation: *const firn_collation,
}

/// An index.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct firn_index {
    /// Its name, UTF-8.
    pub name: *const c_char,
    /// Its parts.
    pub parts: *const firn_key_part,
    /// How many.
    pub part_count: u32,
    /// Whether two rows may not agree in all parts.
    pub unique: bool,
}

/// The definition of a table.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct firn_table_def {
    /// Bytes of the record buffer.
    pub record_len: u32,
    /// Bytes of it that hold NULL bits.
    pub null_bytes: u32,
    /// The columns.
    pub columns: *const firn_column,
    /// How many.
    pub column_count: u32,
    /// The indexes.
    pub indexes: *const firn_index,
    /// How many.
    pub index_count: u32,
    /// Position of the primary index; `FIRN_NONE` for a hidden primary key.
    pub primary: u32,
    /// Position of the AUTO_INCREMENT column, or `FIRN_NONE`.
    pub auto_increment: u32,
    /// Whether the table is optimistic: transactions lock nothing in it, and a commit fails with
    /// `FIRN_DEADLOCK` if another transaction has changed rows on which it depends. The value in
    /// the stored definition counts; the one given to `firn_table_open` is ignored.
    pub optimistic: bool,
    /// Computes collation weights; NULL if no part is text.
    pub collator: *const firn_collator,
    /// The record buffer of a row of default values, or NULL. A column that is NULL gets these
    /// bytes in the record buffer, because the server compares records byte by byte.
    pub default_record: *const u8,
}

/// Converts and checks a definition.
///
/// # Safety
/// All pointers must be valid as their descriptions say. The callbacks and the collation handles
/// must be usable from any thread, and must stay valid as long as the result and everything that is
/// made from it.
///
/// # Errors
/// `InvalidArgument`, with words for the user.
pub unsafe fn table_schema(def: *const firn_table_def) -> Result<TableSchema> {
    // SAFETY: the pointer is NULL, or a definition that stays valid during the call.
    let def = unsafe { def.as_ref() }.ok_or_else(|| Error::invalid("no table definition"))?;
    // SAFETY: the definition and all that it points to stay valid during the call.
    let columns = unsafe { list(def.columns, def.column_count) };
    // SAFETY: the definition and all that it points to stay valid during the call.
    let indexes = unsafe { list(def.indexes, def.index_count) };
    let columns = (0..).zip(columns).map(|(id, column)| {
        // SAFETY: the definition and all that it points to stay valid during the call.
        unsafe { column_schema(id, column) }
    });
    let indexes = indexes.iter().map(|index| {
        // SAFETY: the definition and all that it points to stay valid during the call.
        unsafe { index_schema(index, def.collator) }
    });
    let schema = TableSchema {
        version: 1,
        older: Arc::default(),
        record_len: def.record_len,
        null_bytes: def.null_bytes,
        columns: columns.collect::<Result<_>>()?,
        indexes: indexes.collect::<Result<_>>()?,
        primary: (def.primary != FIRN_NONE).then_some(def.primary),
        auto_increment: (def.auto_increment != FIRN_NONE).then_some(def.auto_increment),
        locking: match def.optimistic {
            true => TableLocking::Optimistic,
            false => TableLocking::Pessimistic,
        },
    };
    schema.check()?;
    Ok(schema)
}

/// # Safety
/// `first` must point to `count` items, if there are any.
unsafe fn list<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    unsafe { std::slice::from_raw_parts(first, count as usize) }
}

/// # Safety
/// `name` must be NULL or end with a zero byte.
unsafe fn text(name: *const c_char) -> Result<String> {
    if name.is_null() {
        return Err(Error::invalid("a name is missing"));
    }
    // SAFETY: the strings end with a NUL byte and stay valid during the call.
    Ok(unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned())
}

fn pad(bytes: &[u8; 4], len: u8) -> Result<Pad> {
    let bytes = bytes.get(..usize::from(len));
    Pad::new(bytes.ok_or_else(|| Error::invalid("length of a space"))?)
}

/// # Safety
/// The name of `column` must be NULL or end with a zero byte.
unsafe fn column_schema(id: u32, column: &firn_column) -> Result<ColumnSchema> {
    let len_bytes = u8::try_from(column.len_bytes).map_err(|_| Error::invalid("length bytes"))?;
    let kind = match column.kind {
        FIRN_COLUMN_FIXED => ColumnKind::Fixed { len: column.len },
        FIRN_COLUMN_CHAR => ColumnKind::Char {
            len: column.len,
            pad: pad(&column.pad, column.pad_len)?,
        },
        FIRN_COLUMN_VARCHAR => ColumnKind::VarChar {
            len_bytes,
            max: column.len,
        },
        FIRN_COLUMN_BLOB => ColumnKind::Blob { len_bytes },
        other => return Err(Error::invalid(format_args!("column kind {other}"))),
    };
    let null = match column.null_mask {
        0 => None,
        mask if mask.is_power_of_two() => Some(NullBit {
            offset: column.null_offset,
            mask,
        }),
        _ => return Err(Error::invalid("a NULL mask of several bits")),
    };
    Ok(ColumnSchema {
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        name: unsafe { text(column.name) }?,
        type_code: column.type_code,
        chars: column.chars,
        interpretation: column.interpretation,
        column: Column {
            id,
            kind,
            offset: column.offset,
            null,
            stored: column.stored,
            instant_default: InstantDefault::Impossible,
        },
    })
}

/// # Safety
/// The requirements are those of [`table_schema`].
unsafe fn index_schema(index: &firn_index, collator: *const firn_collator) -> Result<IndexSchema> {
    // SAFETY: the definition and all that it points to stay valid during the call.
    let parts = unsafe { list(index.parts, index.part_count) }.iter();
    let parts = parts.map(|part| {
        let kind = match part.kind {
            FIRN_PART_INT => PartSchema::Int { signed: true },
            FIRN_PART_UINT => PartSchema::Int { signed: false },
            FIRN_PART_FLOAT => PartSchema::Float,
            FIRN_PART_FIXED => PartSchema::Fixed,
            FIRN_PART_VARBYTES => PartSchema::VarBytes,
            // SAFETY: the part's collation and the collator stay valid during the call, and the
            // handle in the collation stays valid as long as the schema.
            FIRN_PART_TEXT => PartSchema::Text(unsafe { collation(part.collation, collator) }?),
            other => return Err(Error::invalid(format_args!("key part kind {other}"))),
        };
        Ok(IndexPart {
            column: part.column,
            kind,
            desc: part.desc,
            prefix: (part.prefix != 0).then_some(part.prefix),
            image_len: part.image_len,
        })
    });
    Ok(IndexSchema {
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        name: unsafe { text(index.name) }?,
        unique: index.unique,
        parts: parts.collect::<Result<_>>()?,
    })
}

/// A collation that the host describes.
///
/// # Safety
/// The requirements are those of [`table_schema`].
pub(crate) unsafe fn host_collation(
    described: *const firn_collation,
    functions: *const firn_collator,
) -> Result<CollationSchema> {
    // SAFETY: the same promise, passed on.
    unsafe { collation(described, functions) }
}

/// # Safety
/// The requirements are those of [`table_schema`].
unsafe fn collation(
    collation: *const firn_collation,
    collator: *const firn_collator,
) -> Result<CollationSchema> {
    let instant_default = || Error::invalid("a text part without collation");
    // SAFETY: the pointer is NULL, or a struct that stays valid during the call.
    let collation = unsafe { collation.as_ref() }.ok_or_else(instant_default)?;
    // SAFETY: the pointer is NULL, or a struct that stays valid during the call; it is copied
    // below.
    let collator = unsafe { collator.as_ref() }.ok_or_else(instant_default)?;
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let levels = collation.levels.get(..number(collation.level_count));
    let simple = collation.simple.get(..number(collation.simple_len));
    let (Some(levels), Some(simple)) = (levels, simple) else {
        return Err(Error::invalid("levels of a collation"));
    };
    let level = |level: &firn_level| CollationLevel {
        number: level.number,
        space: level.space,
        no_pad: level.no_pad,
    };
    let spec = CollationSpec {
        id: collation.id,
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        name: unsafe { text(collation.name) }?.into(),
        pad: pad(&collation.pad, collation.pad_len)?,
        levels: levels.iter().map(level).collect(),
        weight_len: u8::try_from(collation.weight_len).unwrap_or(0),
        simple: simple.to_vec(),
        form: match collation.form {
            FIRN_TEXT_LOST => TextForm::Lost,
            FIRN_TEXT_BYTES => TextForm::Bytes,
            FIRN_TEXT_UTF8 => TextForm::Utf8,
            other => return Err(Error::invalid(format_args!("text form {other}"))),
        },
        char_filled: collation.char_filled,
    };
    let collator = collator::HostCollator::new(*collator, collation.handle);
    Ok(CollationSchema {
        spec,
        collator: Some(Arc::new(collator)),
    })
}

#[cfg(test)]
mod tests;
