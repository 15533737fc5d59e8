//! Decode plans. A plan has a decode program for each schema version of a table, for one set of
//! wanted columns.

use super::damaged;
use super::decode_program::{DecodeProgram, OutOfLineColumn};
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref;
use crate::base::{Error, Kind, Result, Value, varint};

/// Decodes rows of any schema version of a table into the wanted columns of a record buffer. A plan
/// is created once and used for many rows. Decoding allocates memory only for blobs.
#[derive(Debug, Clone)]
pub struct DecodePlan {
    record_len: usize,
    /// Schema versions with their programs, newest first, because nearly all rows have the newest
    /// version.
    programs: Vec<(u32, DecodeProgram)>,
}

impl DecodePlan {
    pub(super) fn new(record_len: usize, programs: Vec<(u32, DecodeProgram)>) -> Self {
        Self {
            record_len,
            programs,
        }
    }

    /// Decodes a row without blob references into `record`: the wanted columns and their NULL bits.
    /// The rest of `record` does not change. Wanted blob columns in `record` then point into
    /// `blobs`.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no row of this table; `record` is then
    /// partly written. `InvalidArgument` if `record` is too short.
    pub fn decode(&self, value: Value<'_>, record: &mut [u8], blobs: &mut BlobBuf) -> Result<()> {
        self.program(value, record)?.run(value, record, blobs)
    }

    /// As [`Self::decode`], for a row with or without blob references, as `kind` says. Wanted
    /// columns whose values are in blob files are added to `wanted`. `record` is complete after the
    /// caller has read each of these values and called [`OutOfLineColumn::finish`].
    ///
    /// # Errors
    /// As [`Self::decode`]; `Unsupported` if a blob is encrypted.
    #[inline]
    pub fn decode_entry(
        &self,
        kind: Kind,
        value: Value<'_>,
        record: &mut [u8],
        blobs: &mut BlobBuf,
        wanted: &mut Vec<OutOfLineColumn>,
    ) -> Result<()> {
        let program = self.program(value, record)?;
        if kind != Kind::PutBlobs {
            return program.run(value, record, blobs);
        }
        let (tail, refs) = blob_ref::split(value.tail)?;
        let value = Value::split(value.head, tail);
        program.run_with_refs(value, &refs, record, blobs, wanted)
    }

    /// The decode program for rows of the schema version that the row's value head names. Also
    /// checks the length of `record`.
    #[inline]
    fn program(&self, value: Value<'_>, record: &[u8]) -> Result<&DecodeProgram> {
        if record.len() < self.record_len {
            return Err(Error::invalid("record buffer too short"));
        }
        let mut head = value.head;
        let version = varint::take_u32(&mut head).ok_or_else(|| damaged("no schema version"))?;
        match self.programs.first() {
            Some((newest, program)) if *newest == version => Ok(program),
            _ => self.older_program(version),
        }
    }

    #[cold]
    fn older_program(&self, version: u32) -> Result<&DecodeProgram> {
        let known = self.programs.iter().find(|(of, _)| *of == version);
        match known {
            Some((_, program)) => Ok(program),
            None => Err(damaged(&format!("unknown schema version {version}"))),
        }
    }
}
