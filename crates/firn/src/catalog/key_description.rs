//! Describes entries of the store in words: table, index and key.

use super::catalog_state::CatalogState;
use super::index_owners::IndexOwner;
use super::schema::PartSchema;
use super::table_entry::TableEntry;
use super::tables::Catalog;
use crate::base::IndexId;
use crate::base::key::{INDEX_ID_LEN, index_id_of};
use std::fmt::Write;

/// A key in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDescription {
    /// `database/table`; empty if no table has the index.
    pub table: String,
    /// Name of the index; empty for a hidden clustered index.
    pub index: String,
    /// The values of the entry's key parts, each as `column = value`. Parts that cannot be decoded
    /// are in hexadecimal.
    pub values: Vec<String>,
}

impl Catalog {
    /// Describes a key of any index.
    pub fn describe_key(&self, user_key: &[u8]) -> KeyDescription {
        let owner = index_id_of(user_key).and_then(|index| self.owner(index));
        let (table, index) = match &owner {
            Some((table, Some(number))) => (
                table.name.clone(),
                table.schema.indexes[*number].name.clone(),
            ),
            Some((table, None)) => (table.name.clone(), String::new()),
            None => (String::new(), String::new()),
        };
        let key = user_key.get(INDEX_ID_LEN..).unwrap_or_default();
        KeyDescription {
            table,
            index,
            values: key_values(owner.as_ref(), key),
        }
    }

    /// An entry, or the entries with a key prefix, in words; see [`CatalogState::entry_text`].
    pub fn entry_text(&self, user_key: &[u8]) -> String {
        self.entries().read().entry_text(user_key)
    }
}

impl CatalogState {
    /// The index with this id in words, `database/table.index`.
    pub fn index_text(&self, index: IndexId) -> String {
        match self.owner(index) {
            Some((table, Some(number))) => {
                format!("{}.{}", table.name, table.schema.indexes[*number].name)
            }
            Some((table, None)) => table.name.clone(),
            None if self.retired.contains_key(&index) => format!("dropped index {index}"),
            None if index == super::CATALOG_INDEX => "the catalog".to_owned(),
            None => format!("index {index}"),
        }
    }

    /// Describes a key, or a prefix of keys, in words: the index and the values of its key parts.
    pub fn entry_text(&self, user_key: &[u8]) -> String {
        let Some(index) = index_id_of(user_key) else {
            return format!("0x{}", hex(user_key));
        };
        let mut text = self.index_text(index);
        let values = key_values(self.owner(index), &user_key[INDEX_ID_LEN..]);
        if !values.is_empty() {
            let _ = write!(text, " ({})", values.join(", "));
        }
        text
    }

    /// The name of the column with id `column` in the table with the clustered index `clustered`.
    pub fn column_text(&self, clustered: IndexId, column: u32) -> String {
        let name = self.owner(clustered).and_then(|(table, _)| {
            let mut all = table.schema.columns.iter();
            all.find(|one| one.column.id == column)
                .map(|one| one.name.clone())
        });
        name.unwrap_or_else(|| format!("number {column}"))
    }
}

/// The values of a key behind its index id. Integers are decoded, and text is shown if its stored
/// bytes are printable; all other parts appear as stored bytes in hexadecimal. A key stores
/// collation weights instead of text, so text under a collation that ignores case appears in
/// capital letters.
pub(super) fn key_values(owner: Option<&IndexOwner>, key: &[u8]) -> Vec<String> {
    let mut rest = key;
    let mut values = Vec::new();
    match owner {
        Some((table, Some(number))) => {
            let all = take_values(table, *number, &mut rest, &mut values);
            // In a secondary index, an entry's key has the primary key of the row behind the parts
            // that the definition of the index names.
            let primary = table.schema.primary.map(|primary| primary as usize);
            match primary.filter(|primary| primary != number) {
                Some(primary) if all && !rest.is_empty() => {
                    take_values(table, primary, &mut rest, &mut values);
                }
                None if all && table.clustered.id != table.indexes[*number].id => {
                    take_row_id(&mut rest, &mut values);
                }
                _ => {}
            }
        }
        Some((_, None)) => take_row_id(&mut rest, &mut values),
        None => {}
    }
    if !rest.is_empty() {
        values.push(format!("0x{}", hex(rest)));
    }
    values
}

/// Takes the id of a row whose key is hidden.
fn take_row_id(rest: &mut &[u8], values: &mut Vec<String>) {
    if let Some((id, behind)) = rest.split_first_chunk() {
        values.push(format!("hidden row {}", u64::from_be_bytes(*id)));
        *rest = behind;
    }
}

/// Decodes the parts of a key of index `number` from the front of `rest` and adds them to `values`
/// in words. Returns false if a part cannot be decoded; the parts before it are added even then.
fn take_values(
    table: &TableEntry,
    number: usize,
    rest: &mut &[u8],
    values: &mut Vec<String>,
) -> bool {
    let Ok(ends) = table.schema.key_prefix_extractor(number) else {
        return false;
    };
    for (at, part) in table.schema.indexes[number].parts.iter().enumerate() {
        let Some(column) = table.schema.columns.get(part.column as usize) else {
            return false;
        };
        let Some(len) = ends.part_len(rest, at) else {
            return false;
        };
        let mask = if part.desc { 0xff } else { 0 };
        let (bytes, behind) = rest.split_at(len);
        let mut value: Vec<u8> = bytes.iter().map(|byte| byte ^ mask).collect();
        let is_null = column.column.null.is_some() && value.first() == Some(&0);
        if column.column.null.is_some() && !value.is_empty() {
            value.remove(0);
        }
        let text = match &part.kind {
            _ if is_null => "NULL".to_owned(),
            PartSchema::Int { signed } => integer(&value, *signed).to_string(),
            PartSchema::VarBytes | PartSchema::Text(_) => text_of(&value),
            PartSchema::Float | PartSchema::Fixed => format!("0x{}", hex(&value)),
        };
        values.push(format!("{} = {text}", column.name));
        *rest = behind;
    }
    true
}

/// An integer, whose sign bit is inverted in the key.
fn integer(bytes: &[u8], signed: bool) -> i128 {
    let flip = if signed { 0x80 } else { 0 };
    let negative = signed && bytes.first().is_some_and(|byte| byte & 0x80 == 0);
    let start: i128 = if negative { -1 } else { 0 };
    bytes.iter().enumerate().fold(start, |number, (at, byte)| {
        let byte = byte ^ if at == 0 { flip } else { 0 };
        number << 8 | i128::from(byte)
    })
}

/// Returns the text in quotes if all bytes before its end mark are printable, otherwise the bytes
/// in hexadecimal.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte > b' ');
    let front = &bytes[..end.map_or(0, |end| end + 1)];
    match front.iter().all(|byte| (b' '..0x7f).contains(byte)) {
        true => format!("'{}'", String::from_utf8_lossy(front)),
        false => format!("0x{}", hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
