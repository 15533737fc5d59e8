//! Encodes and decodes table definitions in the catalog; `docs/formats/schema.md`.

use super::{
    CollationSchema, ColumnSchema, IndexPart, IndexSchema, PartSchema, TableLocking, TableSchema,
};
use crate::base::record_buffer::{NullBit, Pad};
use crate::base::{Error, Result, varint};
use crate::keycode::{CollationLevel, CollationSpec, TextForm};
use crate::rowcode::{Column, ColumnKind, InstantDefault, RowVersion, StoredColumn};
use std::sync::Arc;

/// Format of definitions whose columns have no checksum of the attributes by which the server
/// interprets a value.
const FORMAT_WITHOUT_INTERPRETATION: u64 = 1;
/// Format of definitions without properties. A definition that needs no properties is still written
/// in this format, so that older versions of Firn can read it.
const FORMAT_WITHOUT_PROPERTIES: u64 = 2;
const FORMAT: u64 = 3;

/// Tag of the property [`TableSchema::locking`]. Its value is one byte, 1 for optimistic.
const LOCKING: u64 = 1;
/// Tag of the property [`TableSchema::older`].
const OLDER: u64 = 2;

pub(super) fn encode(schema: &TableSchema) -> Vec<u8> {
    let mut out = Vec::new();
    let properties = properties_of(schema);
    let format = match properties.is_empty() {
        true => FORMAT_WITHOUT_PROPERTIES,
        false => FORMAT,
    };
    varint::put_u64(&mut out, format);
    put(&mut out, schema.version);
    put(&mut out, schema.record_len);
    put(&mut out, schema.null_bytes);
    put_option(&mut out, schema.primary);
    put_option(&mut out, schema.auto_increment);
    put(&mut out, schema.columns.len() as u32);
    for column in &schema.columns {
        put_column(&mut out, column);
    }
    put(&mut out, schema.indexes.len() as u32);
    for index in &schema.indexes {
        varint::put_bytes(&mut out, index.name.as_bytes());
        out.push(u8::from(index.unique));
        put(&mut out, index.parts.len() as u32);
        for part in &index.parts {
            put_part(&mut out, part);
        }
    }
    if format == FORMAT {
        put(&mut out, properties.len() as u32);
        for (tag, value) in properties {
            varint::put_u64(&mut out, tag);
            varint::put_bytes(&mut out, &value);
        }
    }
    out
}

/// The encoded properties of `schema` that differ from their default, each with its tag.
fn properties_of(schema: &TableSchema) -> Vec<(u64, Vec<u8>)> {
    let mut properties = Vec::new();
    if schema.locking == TableLocking::Optimistic {
        properties.push((LOCKING, vec![1]));
    }
    if !schema.older.is_empty() {
        properties.push((OLDER, older_to_bytes(schema)));
    }
    properties
}

/// The columns that rows of the schema's newest version store.
fn stored_columns(schema: &TableSchema) -> Vec<StoredColumn> {
    let columns = schema.columns.iter();
    columns
        .filter_map(|of| StoredColumn::of(&of.column))
        .collect()
}

/// Encodes the older versions, newest first, each by its difference from the next newer one: the
/// number of columns that both have at the beginning, the number of those at the end, and the
/// columns between. An ALTER mostly adds or drops one column, so this takes a few bytes a version.
fn older_to_bytes(schema: &TableSchema) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, schema.older.len() as u32);
    let mut newer = &stored_columns(schema)[..];
    for version in schema.older.iter() {
        let columns = &version.columns[..];
        let same = |pair: &(&StoredColumn, &StoredColumn)| pair.0 == pair.1;
        let front = newer.iter().zip(columns).take_while(same).count();
        let behind = newer[front..]
            .iter()
            .rev()
            .zip(columns[front..].iter().rev());
        let back = behind.take_while(same).count();
        put(&mut out, version.number);
        put(&mut out, front as u32);
        put(&mut out, back as u32);
        let between = &columns[front..columns.len() - back];
        put(&mut out, between.len() as u32);
        for column in between {
            put(&mut out, column.id);
            out.push(u8::from(column.nullable));
            put_option(&mut out, column.fixed_len);
        }
        newer = columns;
    }
    out
}

fn take_older(mut bytes: &[u8], schema: &TableSchema) -> Option<Vec<RowVersion>> {
    let input = &mut bytes;
    let count = varint::take_u32(input)?;
    let mut older: Vec<RowVersion> = Vec::new();
    let mut newer = stored_columns(schema);
    for _ in 0..count {
        let number = varint::take_u32(input)?;
        let front = varint::take_u32(input)? as usize;
        let back = varint::take_u32(input)? as usize;
        let between = take_list(input, |input| {
            Some(StoredColumn {
                id: varint::take_u32(input)?,
                nullable: take_bool(input)?,
                fixed_len: take_option(input)?,
            })
        })?;
        let end = newer.len().checked_sub(back).filter(|end| front <= *end)?;
        let columns = [&newer[..front], &between, &newer[end..]].concat();
        newer.clone_from(&columns);
        older.push(RowVersion { number, columns });
    }
    input.is_empty().then_some(older)
}

/// Reads the properties. A property that this version does not know would change how the table
/// works, so it is refused.
fn take_properties(input: &mut &[u8], schema: &mut TableSchema) -> Result<()> {
    let count = varint::take_u32(input).ok_or_else(damaged)?;
    for _ in 0..count {
        let tag = varint::take_u64(input).ok_or_else(damaged)?;
        let value = varint::take_bytes(input).ok_or_else(damaged)?;
        match (tag, value) {
            (LOCKING, [1]) => schema.locking = TableLocking::Optimistic,
            (LOCKING, _) => return Err(damaged()),
            (OLDER, value) => {
                schema.older = take_older(value, schema).ok_or_else(damaged)?.into();
            }
            (other, _) => {
                return Err(Error::unsupported(format_args!("table property {other}")));
            }
        }
    }
    Ok(())
}

pub(super) fn decode(mut bytes: &[u8]) -> Result<TableSchema> {
    let input = &mut bytes;
    let format = match varint::take_u64(input) {
        Some(known @ FORMAT_WITHOUT_INTERPRETATION..=FORMAT) => known,
        Some(other) => {
            return Err(Error::unsupported(format_args!(
                "table definition format {other}"
            )));
        }
        None => return Err(damaged()),
    };
    let interpreted = format > FORMAT_WITHOUT_INTERPRETATION;
    let mut schema = take_schema(input, interpreted).ok_or_else(damaged)?;
    if format == FORMAT {
        take_properties(input, &mut schema)?;
    }
    if !input.is_empty() {
        return Err(damaged());
    }
    schema.check().map_err(|_| damaged())?;
    Ok(schema)
}

fn damaged() -> Error {
    Error::corruption("", 0, "table definition")
}

fn take_schema(input: &mut &[u8], interpreted: bool) -> Option<TableSchema> {
    Some(TableSchema {
        version: varint::take_u32(input)?,
        older: Arc::default(),
        record_len: varint::take_u32(input)?,
        null_bytes: varint::take_u32(input)?,
        primary: take_option(input)?,
        auto_increment: take_option(input)?,
        columns: take_list(input, |input| take_column(input, interpreted))?,
        indexes: take_list(input, |input| {
            Some(IndexSchema {
                name: take_string(input)?,
                unique: take_bool(input)?,
                parts: take_list(input, take_part)?,
            })
        })?,
        locking: TableLocking::Pessimistic,
    })
}

fn put_column(out: &mut Vec<u8>, column: &ColumnSchema) {
    let Column {
        id,
        kind,
        offset,
        null,
        stored,
        instant_default,
    } = &column.column;
    varint::put_bytes(out, column.name.as_bytes());
    put(out, column.type_code);
    put(out, column.chars);
    put(out, column.interpretation);
    put(out, *id);
    put(out, *offset);
    out.push(u8::from(*stored));
    match null {
        None => out.push(0),
        Some(null) => {
            out.push(null.mask);
            put(out, null.offset);
        }
    }
    match *kind {
        ColumnKind::Fixed { len } => {
            out.push(0);
            put(out, len);
        }
        ColumnKind::Char { len, pad } => {
            out.push(1);
            put(out, len);
            varint::put_bytes(out, pad.as_bytes());
        }
        ColumnKind::VarChar { len_bytes, max } => {
            out.extend_from_slice(&[2, len_bytes]);
            put(out, max);
        }
        ColumnKind::Blob { len_bytes } => out.extend_from_slice(&[3, len_bytes]),
    }
    match instant_default {
        InstantDefault::Impossible => out.push(0),
        InstantDefault::Null => out.push(1),
        InstantDefault::Bytes(bytes) => {
            out.push(2);
            varint::put_bytes(out, bytes);
        }
    }
}

fn take_column(input: &mut &[u8], interpreted: bool) -> Option<ColumnSchema> {
    Some(ColumnSchema {
        name: take_string(input)?,
        type_code: varint::take_u32(input)?,
        chars: varint::take_u32(input)?,
        interpretation: if interpreted {
            varint::take_u32(input)?
        } else {
            0
        },
        column: {
            let id = varint::take_u32(input)?;
            let offset = varint::take_u32(input)?;
            let stored = take_bool(input)?;
            let null = match varint::take_u8(input)? {
                0 => None,
                mask if mask.is_power_of_two() => Some(NullBit {
                    offset: varint::take_u32(input)?,
                    mask,
                }),
                _ => return None,
            };
            let kind = take_kind(input)?;
            let instant_default = match varint::take_u8(input)? {
                0 => InstantDefault::Impossible,
                1 => InstantDefault::Null,
                2 => InstantDefault::Bytes(varint::take_bytes(input)?.into()),
                _ => return None,
            };
            Column {
                id,
                kind,
                offset,
                null,
                stored,
                instant_default,
            }
        },
    })
}

fn take_kind(input: &mut &[u8]) -> Option<ColumnKind> {
    Some(match varint::take_u8(input)? {
        0 => ColumnKind::Fixed {
            len: varint::take_u32(input)?,
        },
        1 => ColumnKind::Char {
            len: varint::take_u32(input)?,
            pad: Pad::new(varint::take_bytes(input)?).ok()?,
        },
        2 => ColumnKind::VarChar {
            len_bytes: varint::take_u8(input)?,
            max: varint::take_u32(input)?,
        },
        3 => ColumnKind::Blob {
            len_bytes: varint::take_u8(input)?,
        },
        _ => return None,
    })
}

fn put_part(out: &mut Vec<u8>, part: &IndexPart) {
    put(out, part.column);
    out.push(u8::from(part.desc));
    put_option(out, part.prefix);
    put(out, part.image_len);
    match &part.kind {
        PartSchema::Int { signed } => out.extend_from_slice(&[0, u8::from(*signed)]),
        PartSchema::Float => out.push(1),
        PartSchema::Fixed => out.push(2),
        PartSchema::VarBytes => out.push(3),
        PartSchema::Text(collation) => {
            out.push(4);
            put_collation(out, &collation.spec);
        }
    }
}

fn take_part(input: &mut &[u8]) -> Option<IndexPart> {
    Some(IndexPart {
        column: varint::take_u32(input)?,
        desc: take_bool(input)?,
        prefix: take_option(input)?,
        image_len: varint::take_u32(input)?,
        kind: match varint::take_u8(input)? {
            0 => PartSchema::Int {
                signed: take_bool(input)?,
            },
            1 => PartSchema::Float,
            2 => PartSchema::Fixed,
            3 => PartSchema::VarBytes,
            4 => PartSchema::Text(CollationSchema {
                spec: take_collation(input)?,
                collator: None,
            }),
            _ => return None,
        },
    })
}

fn put_collation(out: &mut Vec<u8>, spec: &CollationSpec) {
    put(out, spec.id);
    varint::put_bytes(out, spec.name.as_bytes());
    varint::put_bytes(out, spec.pad.as_bytes());
    out.push(spec.weight_len);
    out.push(match spec.form {
        TextForm::Lost => 0,
        TextForm::Bytes => 1,
        TextForm::Utf8 => 2,
    });
    out.push(u8::from(spec.char_filled));
    put(out, spec.levels.len() as u32);
    for level in &spec.levels {
        put(out, level.number);
        put(out, level.space);
        out.push(u8::from(level.no_pad));
    }
}

fn take_collation(input: &mut &[u8]) -> Option<CollationSpec> {
    Some(CollationSpec {
        id: varint::take_u32(input)?,
        name: take_string(input)?.into(),
        pad: Pad::new(varint::take_bytes(input)?).ok()?,
        weight_len: varint::take_u8(input)?,
        form: match varint::take_u8(input)? {
            0 => TextForm::Lost,
            1 => TextForm::Bytes,
            2 => TextForm::Utf8,
            _ => return None,
        },
        char_filled: take_bool(input)?,
        levels: take_list(input, |input| {
            Some(CollationLevel {
                number: varint::take_u32(input)?,
                space: varint::take_u32(input)?,
                no_pad: take_bool(input)?,
            })
        })?,
        simple: Vec::new(),
    })
}

fn put(out: &mut Vec<u8>, number: u32) {
    varint::put_u64(out, u64::from(number));
}

/// Encodes `None` as 0, a number as the number plus 1.
fn put_option(out: &mut Vec<u8>, number: Option<u32>) {
    varint::put_u64(out, number.map_or(0, |n| u64::from(n) + 1));
}

fn take_option(input: &mut &[u8]) -> Option<Option<u32>> {
    match varint::take_u64(input)?.checked_sub(1) {
        None => Some(None),
        Some(number) => Some(Some(number.try_into().ok()?)),
    }
}

fn take_bool(input: &mut &[u8]) -> Option<bool> {
    match varint::take_u8(input)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn take_string(input: &mut &[u8]) -> Option<String> {
    String::from_utf8(varint::take_bytes(input)?.to_vec()).ok()
}

fn take_list<T>(
    input: &mut &[u8],
    mut take: impl FnMut(&mut &[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    let count = varint::take_u32(input)?;
    // Do not reserve memory: the count may be damaged.
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(take(input)?);
    }
    Some(list)
}
