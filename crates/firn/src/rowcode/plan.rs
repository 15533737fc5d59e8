//! A decode plan: the programs of all versions for one set of wanted columns.

use super::program::{OutOfLine, Program};
use super::{BlobBuf, blob_ref, damaged};
use crate::base::{Error, Kind, Result, Value, varint};

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
        self.program(value, record)?.run(value, record, blobs)
    }

    /// As [`Self::decode`], for an entry of any kind of put. Wanted columns whose bytes lie out of line
    /// go to `wanted`, and are not complete in `record` until they are read and put in their places.
    ///
    /// # Errors
    /// As [`Self::decode`].
    #[inline]
    pub fn decode_entry(
        &self,
        kind: Kind,
        value: Value<'_>,
        record: &mut [u8],
        blobs: &mut BlobBuf,
        wanted: &mut Vec<OutOfLine>,
    ) -> Result<()> {
        let program = self.program(value, record)?;
        if kind != Kind::PutBlobs {
            return program.run(value, record, blobs);
        }
        let (tail, refs) = blob_ref::split(value.tail)?;
        let value = Value::split(value.head, tail);
        program.run_with_refs(value, &refs, record, blobs, wanted)
    }

    /// The program for the row's version, if `record` has room for what it decodes to.
    fn program(&self, value: Value<'_>, record: &[u8]) -> Result<&Program> {
        if record.len() < self.record_len {
            return Err(Error::invalid("record buffer too short"));
        }
        let mut head = value.head;
        let version = varint::take_u32(&mut head).ok_or_else(|| damaged("no schema version"))?;
        let known = self.programs.iter().find(|(of, _)| *of == version);
        match known {
            Some((_, program)) => Ok(program),
            None => Err(damaged(&format!("unknown schema version {version}"))),
        }
    }
}
