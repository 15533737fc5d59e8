//! The stored form of a foreign key; `docs/formats/catalog.md` has the layout.

use crate::base::varint::{put_bytes, put_u64, take_bytes, take_u8, take_u32};

/// The action on referencing rows when the referenced row is deleted or gets another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReferentialAction {
    /// The change of the referenced row is refused. A definition that names no action has this one.
    #[default]
    Restrict,
    /// As [`Self::Restrict`], for definitions that say NO ACTION.
    NoAction,
    /// The rows are deleted or get the new key.
    Cascade,
    /// The columns become NULL.
    SetNull,
}

impl ReferentialAction {
    /// The action with this number; the inverse of `as u8`.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Restrict,
            1 => Self::NoAction,
            2 => Self::Cascade,
            3 => Self::SetNull,
            _ => return None,
        })
    }

    /// Whether referencing rows change.
    pub fn changes_rows(self) -> bool {
        matches!(self, Self::Cascade | Self::SetNull)
    }
}

/// A column of a foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKeyColumn {
    /// Name of the referencing column.
    pub name: String,
    /// Name of the referenced column.
    pub referenced: String,
    /// The largest number of characters in a value of the referencing column; 0 if it is no text. A
    /// cascade checks the new value against it, because a value may fit into the bytes of a VARCHAR
    /// and still have too many characters.
    pub chars: u32,
}

/// A foreign key. It is stored in the catalog entry of the referencing table. It names the
/// referenced table instead of pointing to it, because that table may be created later, or be
/// replaced by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name of the foreign key, which is unique in the database of the referencing table.
    pub name: String,
    /// The columns, at least one.
    pub columns: Vec<ForeignKeyColumn>,
    /// The referenced table, `database/table`.
    pub parent: String,
    /// The action that follows the deletion of a referenced row.
    pub on_delete: ReferentialAction,
    /// The action that follows when a referenced row gets another key.
    pub on_update: ReferentialAction,
    /// Whether the referencing table is a copy, made by a copying ALTER, that will replace another
    /// table, and that other table has the same foreign key. Rows of the copy are then not checked,
    /// because they were checked in the old table. The flag is cleared when the copy takes over the
    /// name.
    pub inherited: bool,
}

const INHERITED: u8 = 1 << 4;

impl ForeignKey {
    /// Names of the referencing columns.
    pub fn column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|one| &*one.name).collect()
    }

    /// Names of the referenced columns.
    pub fn parent_column_names(&self) -> Vec<&str> {
        self.columns.iter().map(|one| &*one.referenced).collect()
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.parent.as_bytes());
        let inherited = if self.inherited { INHERITED } else { 0 };
        out.push(self.on_delete as u8 | (self.on_update as u8) << 2 | inherited);
        put_u64(out, self.columns.len() as u64);
        for column in &self.columns {
            put_bytes(out, column.name.as_bytes());
            put_bytes(out, column.referenced.as_bytes());
            put_u64(out, u64::from(column.chars));
        }
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let name = take_string(input)?;
        let parent = take_string(input)?;
        let flags = take_u8(input)?;
        if flags & !(INHERITED | 0xf) != 0 {
            return None;
        }
        let count = take_u32(input)?;
        // Do not reserve memory: the count may be damaged.
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push(ForeignKeyColumn {
                name: take_string(input)?,
                referenced: take_string(input)?,
                chars: take_u32(input)?,
            });
        }
        (!columns.is_empty()).then_some(Self {
            name,
            columns,
            parent,
            on_delete: ReferentialAction::from_number(flags & 3)?,
            on_update: ReferentialAction::from_number(flags >> 2 & 3)?,
            inherited: flags & INHERITED != 0,
        })
    }
}

/// Encodes the foreign keys of a table.
pub(super) fn encode(keys: &[ForeignKey]) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, keys.len() as u64);
    keys.iter().for_each(|key| key.put(&mut out));
    out
}

/// Decodes what [`encode`] has encoded; `None` if it is damaged.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<ForeignKey>> {
    let input = &mut bytes;
    let count = take_u32(input)?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(ForeignKey::take(input)?);
    }
    input.is_empty().then_some(keys)
}

fn take_string(input: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(input)?.to_vec()).ok()
}

/// The database of a table's name.
pub(super) fn database_of(table: &str) -> &str {
    table
        .split_once('/')
        .map_or(table, |(database, _)| database)
}

/// Whether `table` is a name that the server gives to temporary copies of tables during a copying
/// ALTER.
pub fn is_copy(table: &str) -> bool {
    table
        .split_once('/')
        .is_some_and(|(_, name)| name.starts_with("#sql"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ForeignKey {
        ForeignKey {
            name: "c_ibfk_1".into(),
            columns: vec![ForeignKeyColumn {
                name: "p".into(),
                referenced: "id".into(),
                chars: 7,
            }],
            parent: "d/p".into(),
            on_delete: ReferentialAction::SetNull,
            on_update: ReferentialAction::Cascade,
            inherited: true,
        }
    }

    #[test]
    fn foreign_keys_come_back_as_they_were_encoded() {
        let keys = vec![
            key(),
            ForeignKey {
                inherited: false,
                ..key()
            },
        ];
        assert_eq!(decode(&encode(&keys)), Some(keys));
    }

    #[test]
    fn no_damaged_byte_is_taken_for_a_foreign_key_of_unknown_kind() {
        let good = encode(&[key()]);
        for len in 0..good.len() {
            assert_eq!(decode(&good[..len]), None);
        }
        let mut longer = good;
        longer.push(0);
        assert_eq!(decode(&longer), None);
    }
}
