//! Describes entries of the store in words: table, index and key.

use super::catalog_state::CatalogState;
use super::schema::{IndexSchema, PartSchema};
use super::table_entry::TableEntry;
use crate::base::IndexId;
use crate::base::key::{INDEX_ID_LEN, index_id_of};
use crate::rowcode::ColumnKind;
use std::fmt::Write;
use std::sync::Arc;

impl CatalogState {
    /// The index with this id in words, `database/table.index`.
    pub fn index_text(&self, index: IndexId) -> String {
        match self.owner_of(index) {
            Some((table, Some(number))) => {
                format!("{}.{}", table.name, table.schema.indexes[number].name)
            }
            Some((table, None)) => table.name.clone(),
            None if self.retired.contains_key(&index) => format!("dropped index {index}"),
            None if index == super::CATALOG_INDEX => "the catalog".to_owned(),
            None => format!("index {index}"),
        }
    }

    /// An entry, or the entries with a key prefix, in words: index, and the values of the leading
    /// integer parts. Later parts appear as stored bytes, since text cannot be decoded from a key.
    pub fn entry_text(&self, user_key: &[u8]) -> String {
        let Some(index) = index_id_of(user_key) else {
            return format!("0x{}", hex(user_key));
        };
        let mut text = self.index_text(index);
        let mut rest = &user_key[INDEX_ID_LEN..];
        let mut values = Vec::new();
        match self.owner_of(index) {
            Some((table, Some(number))) => {
                take_integers(
                    &table,
                    &table.schema.indexes[number],
                    &mut rest,
                    &mut values,
                );
            }
            Some((_, None)) => {
                if let Some((id, behind)) = rest.split_first_chunk() {
                    values.push(format!("hidden row {}", u64::from_be_bytes(*id)));
                    rest = behind;
                }
            }
            None => {}
        }
        if !rest.is_empty() {
            values.push(format!("0x{}", hex(rest)));
        }
        if !values.is_empty() {
            let _ = write!(text, " ({})", values.join(", "));
        }
        text
    }

    /// The name of a column, by its id, of the table with clustered index `clustered`.
    pub fn column_text(&self, clustered: IndexId, column: u32) -> String {
        let name = self.owner_of(clustered).and_then(|(table, _)| {
            let mut all = table.schema.columns.iter();
            all.find(|one| one.column.id == column)
                .map(|one| one.name.clone())
        });
        name.unwrap_or_else(|| format!("number {column}"))
    }

    /// The table that has the index, and the index's number; no number for a hidden clustered
    /// index.
    fn owner_of(&self, index: IndexId) -> Option<(Arc<TableEntry>, Option<usize>)> {
        self.tables.values().find_map(|table| {
            let number = table.indexes.iter().position(|one| one.id == index);
            let found = number.is_some() || table.clustered.id == index;
            found.then(|| (Arc::clone(table), number))
        })
    }
}

/// Takes the leading integer parts of a key.
fn take_integers(
    table: &TableEntry,
    index: &IndexSchema,
    rest: &mut &[u8],
    values: &mut Vec<String>,
) {
    for part in &index.parts {
        let PartSchema::Int { signed } = part.kind else {
            return;
        };
        let Some(column) = table.schema.columns.get(part.column as usize) else {
            return;
        };
        let ColumnKind::Fixed { len } = column.column.kind else {
            return;
        };
        let mask = if part.desc { 0xff } else { 0 };
        let mut key = *rest;
        if column.column.null.is_some() {
            let Some((marker, behind)) = key.split_first() else {
                return;
            };
            key = behind;
            if marker ^ mask == 0 {
                values.push(format!("{} = NULL", column.name));
                *rest = key;
                continue;
            }
        }
        let Some((bytes, behind)) = key.split_at_checked(len as usize) else {
            return;
        };
        let flip = if signed { 0x80 } else { 0 };
        let negative = signed && bytes.first().is_some_and(|b| (b ^ mask) & 0x80 == 0);
        let start: i128 = if negative { -1 } else { 0 };
        let number = bytes.iter().enumerate().fold(start, |number, (at, byte)| {
            let byte = byte ^ mask ^ if at == 0 { flip } else { 0 };
            number << 8 | i128::from(byte)
        });
        values.push(format!("{} = {number}", column.name));
        *rest = behind;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
