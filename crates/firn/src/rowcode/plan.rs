//! A decode plan: the programs of all versions for one set of wanted columns.

use super::program::Program;
use super::{BlobBuf, damaged};
use crate::base::{Error, Result, Value, varint};

/// Decodes rows of every version of a table into a chosen set of columns. Made once, used for many
/// rows; decoding allocates nothing but room for blobs.
#[derive(Debug, Clone)]
pub struct DecodePlan {
    record_len: usize,
    /// Version and program, newest first: nearly all rows are of the newest version.
    programs: Vec<(u32, Program)>,
}

impl DecodePlan {
    pub(super) fn new(record_len: usize, programs: Vec<(u32, Program)>) -> Self {
        Self {
            record_len,
            programs,
        }
    }

    /// Decodes a row (without blob trailer) into `record`: the wanted columns and their NULL bits;
    /// nothing else of `record` changes. Blob columns point into `blobs` afterwards.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no row of this table; `record` then holds
    /// a part of it. `InvalidArgument` if `record` is too short.
    pub fn decode(&self, value: Value<'_>, record: &mut [u8], blobs: &mut BlobBuf) -> Result<()> {
        if record.len() < self.record_len {
            return Err(Error::invalid("record buffer too short"));
        }
        let mut head = value.head;
        let version = varint::take_u32(&mut head).ok_or_else(|| damaged("no schema version"))?;
        for (of, program) in &self.programs {
            if *of == version {
                return program.run(value, record, blobs);
            }
        }
        Err(damaged(&format!("unknown schema version {version}")))
    }
}
