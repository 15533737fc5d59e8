//! Decode plans. A plan has a decode program for each schema version of a table, for one set of
//! wanted columns.

use super::decode_program::{DecodeProgram, OutOfLineColumn};
use super::{RowLayout, RowVersion, damaged};
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref;
use crate::base::{Error, Kind, Result, Value, varint};
use std::sync::{Arc, OnceLock};

/// Decodes rows of any schema version of a table into the wanted columns of a record buffer. A plan
/// is created once and used for many rows. Decoding allocates memory only for blobs, and for the
/// first row of each older version that the plan meets.
#[derive(Debug, Clone)]
pub struct DecodePlan {
    record_len: usize,
    /// The newest schema version, which nearly all rows have.
    version: u32,
    newest: DecodeProgram,
    /// `None` if the table has no older versions.
    older: Option<Box<OlderPrograms>>,
}

/// The programs for rows of older versions. Each is made when the first of its rows is decoded: a
/// table may have many versions, and a statement mostly meets a few.
#[derive(Debug, Clone)]
struct OlderPrograms {
    current: Arc<RowLayout>,
    versions: Arc<[RowVersion]>,
    wanted: Option<Box<[u8]>>,
    /// In the order of `versions`.
    programs: Box<[OnceLock<Box<DecodeProgram>>]>,
}

fn is_wanted(wanted: Option<&[u8]>, column: usize) -> bool {
    wanted.is_none_or(|bits| {
        bits.get(column / 8)
            .is_some_and(|byte| byte >> (column % 8) & 1 == 1)
    })
}

impl DecodePlan {
    /// A plan for rows of the layout `current` and of the versions `older`, newest first.
    pub(super) fn new(
        current: &Arc<RowLayout>,
        older: &Arc<[RowVersion]>,
        wanted: Option<&[u8]>,
    ) -> Self {
        let newest = DecodeProgram::new(
            current.head(),
            current,
            |column| is_wanted(wanted, column),
            |number, _| Ok(current.slot(number)),
        );
        let older = (!older.is_empty()).then(|| {
            Box::new(OlderPrograms {
                current: Arc::clone(current),
                versions: Arc::clone(older),
                wanted: wanted.map(Into::into),
                programs: older.iter().map(|_| OnceLock::new()).collect(),
            })
        });
        Self {
            record_len: current.record_len(),
            version: current.version(),
            newest: newest.expect("rows of a layout have all its stored columns"),
            older,
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
        match version == self.version {
            true => Ok(&self.newest),
            false => self.older_program(version),
        }
    }

    #[cold]
    fn older_program(&self, version: u32) -> Result<&DecodeProgram> {
        let known = self.older.as_ref().and_then(|older| older.find(version));
        known.unwrap_or_else(|| Err(damaged(&format!("unknown schema version {version}"))))
    }
}

impl OlderPrograms {
    /// The program for rows of `version`; `None` if there is no such version.
    fn find(&self, version: u32) -> Option<Result<&DecodeProgram>> {
        let newest_first = |of: &RowVersion| version.cmp(&of.number);
        let at = self.versions.binary_search_by(newest_first).ok()?;
        let program = &self.programs[at];
        if program.get().is_none() {
            match self.make(&self.versions[at]) {
                Ok(made) => {
                    let _ = program.set(Box::new(made));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        program.get().map(|program| Ok(&**program))
    }

    fn make(&self, version: &RowVersion) -> Result<DecodeProgram> {
        let slots = version.slots();
        DecodeProgram::new(
            slots.head,
            &self.current,
            |column| is_wanted(self.wanted.as_deref(), column),
            |_, column| slots.find(column),
        )
    }
}
