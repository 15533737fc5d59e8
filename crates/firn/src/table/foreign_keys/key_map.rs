//! Turns a key of one index into the key of an index of another table.
//!
//! Both indexes begin with the columns of a foreign key, and equal values have equal bytes in both,
//! apart from the NULL marker, which depends on the column, and the inversion of a descending part.

use crate::base::Result;
use crate::catalog::TableSchema;
use crate::keycode::KeyCodec;

const NOT_NULL: u8 = 1;

/// How a part is written in an index.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PartForm {
    nullable: bool,
    descending: bool,
}

/// Turns the first parts of keys of one index into the same parts of keys of another index.
pub(super) struct KeyMap {
    /// Finds the ends of parts.
    from: KeyCodec,
    forms: Vec<(PartForm, PartForm)>,
    /// Whether the parts have the same bytes in both indexes.
    same: bool,
}

fn forms(schema: &TableSchema, index: usize, parts: usize) -> Vec<PartForm> {
    let all = schema.entry_parts(index).into_iter().take(parts);
    let forms = all.map(|part| PartForm {
        nullable: schema.columns[part.column as usize].column.null.is_some(),
        descending: part.desc,
    });
    forms.collect()
}

impl KeyMap {
    /// The map from the index `from` of one table to the index `to` of another one, for the first
    /// `parts` parts.
    ///
    /// # Errors
    /// `InvalidArgument` if the source has fewer parts.
    pub(super) fn new(
        from: (&TableSchema, usize),
        to: (&TableSchema, usize),
        parts: usize,
    ) -> Result<Self> {
        let codec = from.0.leading_key_codec(from.1, parts)?;
        let of = forms(from.0, from.1, parts);
        let forms: Vec<_> = of.into_iter().zip(forms(to.0, to.1, parts)).collect();
        Ok(Self {
            same: forms.iter().all(|(from, to)| from == to),
            from: codec,
            forms,
        })
    }

    /// Converts the first parts of `key` (without its index id) from the index `from` of
    /// [`Self::new`] to the form that the index `to` has for the same values, and appends them to
    /// `out`. Returns false if one of the parts is NULL.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no key.
    pub(super) fn map(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let parts = self.forms.len();
        if self.from.has_null(key, parts)? {
            return Ok(false);
        }
        if self.same {
            out.extend_from_slice(&key[..self.from.skip(key, parts)?]);
            return Ok(true);
        }
        let mut start = 0;
        for (at, (from, to)) in self.forms.iter().enumerate() {
            let end = self.from.skip(key, at + 1)?;
            let inverts = from.descending != to.descending;
            let value = &key[start + usize::from(from.nullable)..end];
            if to.nullable {
                out.push(if to.descending { !NOT_NULL } else { NOT_NULL });
            }
            out.extend(value.iter().map(|byte| if inverts { !byte } else { *byte }));
            start = end;
        }
        Ok(true)
    }
}
