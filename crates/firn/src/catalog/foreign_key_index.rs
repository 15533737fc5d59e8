//! Finds an index by which the rows of a foreign key can be found: one that begins with the columns
//! of the foreign key.

use super::schema::{IndexPart, PartSchema, TableSchema};
use crate::rowcode::ColumnKind;

/// The reason why a table has no index for a foreign key. If several indexes come close and fail
/// for different reasons, it is the reason of the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IndexTrouble {
    /// No index begins with the columns.
    Missing,
    /// An index begins with some of the columns, but its next part has only a prefix of a column.
    Prefix,
    /// An index begins with the columns up to this position, where the type of the referenced
    /// column differs from that of the referencing column.
    Differs {
        /// Position in the list of columns.
        at: usize,
        /// Name of the column.
        column: String,
    },
}

/// The number of the first index of `schema` that begins with `columns`. `like` is an index of
/// another table: if it is given, equal values in these columns must have equal bytes in the keys
/// of both indexes, apart from NULL markers and from the inversion of descending parts.
pub(super) fn leading_index(
    schema: &TableSchema,
    columns: &[&str],
    like: Option<(&TableSchema, usize)>,
) -> Result<usize, IndexTrouble> {
    leading_index_but(schema, columns, like, &[])
}

/// As [`leading_index`], without the indexes whose numbers are in `left_out`.
pub(super) fn leading_index_but(
    schema: &TableSchema,
    columns: &[&str],
    like: Option<(&TableSchema, usize)>,
    left_out: &[usize],
) -> Result<usize, IndexTrouble> {
    let mut trouble = IndexTrouble::Missing;
    for number in (0..schema.indexes.len()).filter(|number| !left_out.contains(number)) {
        match begins_with(schema, number, columns, like) {
            Ok(true) => return Ok(number),
            Ok(false) => {}
            Err(reason) => trouble = reason,
        }
    }
    Err(trouble)
}

fn begins_with(
    schema: &TableSchema,
    number: usize,
    columns: &[&str],
    like: Option<(&TableSchema, usize)>,
) -> Result<bool, IndexTrouble> {
    let parts = schema.entry_parts(number);
    if parts.len() < columns.len() {
        return Ok(false);
    }
    let others = like.map(|(other, index)| (other, other.entry_parts(index)));
    for (at, (wanted, part)) in columns.iter().zip(&parts).enumerate() {
        let Some(column) = schema.columns.get(part.column as usize) else {
            return Ok(false);
        };
        if part.prefix.is_some() {
            return Err(IndexTrouble::Prefix);
        }
        if !same_name(&column.name, wanted) {
            return Ok(false);
        }
        if let Some((other, others)) = &others
            && !same_bytes(schema, part, other, others[at])
        {
            return Err(IndexTrouble::Differs {
                at,
                column: column.name.clone(),
            });
        }
    }
    Ok(true)
}

/// Whether the server regards the two names as names of the same column.
pub(super) fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

/// Whether equal values have the same bytes in a key with part `a` as in a key with part `b`, apart
/// from NULL markers and the inversion of descending parts.
fn same_bytes(a_of: &TableSchema, a: &IndexPart, b_of: &TableSchema, b: &IndexPart) -> bool {
    let kind_of = |schema: &TableSchema, part: &IndexPart| {
        schema
            .columns
            .get(part.column as usize)
            .map(|column| (column.column.kind, column.chars))
    };
    let (Some((a_kind, a_chars)), Some((b_kind, b_chars))) = (kind_of(a_of, a), kind_of(b_of, b))
    else {
        return false;
    };
    match (&a.kind, &b.kind) {
        (PartSchema::Int { signed: a }, PartSchema::Int { signed: b }) => {
            a == b && a_kind == b_kind
        }
        (PartSchema::Float, PartSchema::Float) | (PartSchema::Fixed, PartSchema::Fixed) => {
            a_kind == b_kind
        }
        (PartSchema::VarBytes, PartSchema::VarBytes) => true,
        (PartSchema::Text(a), PartSchema::Text(b)) if a.spec.id == b.spec.id => {
            let is_char = |kind| matches!(kind, ColumnKind::Char { .. });
            match (is_char(a_kind), is_char(b_kind)) {
                (true, true) => !a.spec.char_filled || a_chars == b_chars,
                (false, false) => true,
                // The bytes of a CHAR part and of a VARCHAR part are equal only if both encode text
                // as if spaces followed it. A CHAR part does so unless the collation has
                // `char_filled`; a VARCHAR part does so if no level of the collation is NO PAD.
                _ => !a.spec.char_filled && a.spec.levels.iter().all(|level| !level.no_pad),
            }
        }
        _ => false,
    }
}

impl TableSchema {
    /// The parts of the keys of entries in index `number`: those that the definition of the index
    /// names, and behind them in a secondary index the parts of the primary key, unless that is
    /// hidden.
    pub fn entry_parts(&self, number: usize) -> Vec<&IndexPart> {
        let mut parts: Vec<&IndexPart> = self.indexes[number].parts.iter().collect();
        if let Some(primary) = self.primary.filter(|primary| *primary as usize != number) {
            parts.extend(&self.indexes[primary as usize].parts);
        }
        parts
    }

    /// The number of the first index that begins with `columns`. `like` is an index of another
    /// table: if it is given, equal values in these columns have equal bytes in the keys of both
    /// indexes.
    pub fn leading_index(
        &self,
        columns: &[&str],
        like: Option<(&TableSchema, usize)>,
    ) -> Option<usize> {
        leading_index(self, columns, like).ok()
    }

    /// The position of the column called `name`.
    pub fn column_called(&self, name: &str) -> Option<usize> {
        self.find_column(name)
    }

    /// The position of the column called `name`.
    pub(super) fn find_column(&self, name: &str) -> Option<usize> {
        self.columns
            .iter()
            .position(|column| same_name(&column.name, name))
    }
}
