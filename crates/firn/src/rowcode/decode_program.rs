//! Decodes rows of one schema version by a program, which is a list of copies to make for each row.

use super::column_target::ColumnTarget;
use super::instant_default::InstantDefaultOp;
use super::row_layout::{
    ColumnPosition, ColumnSlot, CopyRange, RowHead, RowLayout, push_run, split_tail,
};
use super::{Column, ColumnKind, NullBit, damaged};
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::BlobRef;
use crate::base::{Result, Value, varint};

/// The step that decodes one variable column.
#[derive(Debug, Clone)]
struct VarOp {
    /// Position among the variable columns of the row.
    index: u32,
    /// Id of the column.
    id: u32,
    target: ColumnTarget,
}

/// A wanted column whose value is in a blob file. The caller reads the value and calls
/// [`Self::finish`].
#[derive(Debug, Clone, Copy)]
pub struct OutOfLineColumn {
    /// Reference to the value in the blob file.
    pub blob: BlobRef,
    target: ColumnTarget,
}

impl OutOfLineColumn {
    /// Checks that the value, by the length in its reference, fits the column. Must be called
    /// before the value is read.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the value is too long.
    pub fn check(&self) -> Result<()> {
        let len = usize::try_from(self.blob.len);
        match len.is_ok_and(|len| self.target.kind.has_room(len)) {
            true => Ok(()),
            false => Err(damaged("a value out of line is longer than its column")),
        }
    }

    /// Whether the record buffer gets a copy of the value, and not a pointer to it.
    pub fn is_copied(&self) -> bool {
        !matches!(self.target.kind, ColumnKind::Blob { .. })
    }

    /// Writes the value `bytes` to `record`. A blob column then points to `bytes`, which must
    /// neither move nor be freed as long as `record` is used.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the value is too long.
    pub fn finish(&self, bytes: &[u8], record: &mut [u8]) -> Result<()> {
        self.target.write(bytes, record, |bytes| bytes.as_ptr())
    }
}

/// The step that sets a NULL bit of the record buffer if the corresponding bit of the row's bitmap
/// is set.
#[derive(Debug, Clone, Copy)]
struct NullOp {
    row_byte: u32,
    row_mask: u8,
    record: NullBit,
}

/// Decodes rows of one layout into record buffers of the table's newest layout.
///
/// Steps: clear the NULL bits of the wanted columns. Set the bits of those that are NULL, unless
/// the row's bitmap is all zero. Copy the ranges of fixed columns. Walk over the lengths of the
/// variable columns up to the last wanted one, and copy the wanted ones. Write the instant defaults
/// of the wanted columns that the row lacks.
#[derive(Debug, Clone)]
pub(super) struct DecodeProgram {
    head: RowHead,
    clear: Vec<NullBit>,
    nulls: Vec<NullOp>,
    runs: Vec<CopyRange>,
    vars: Vec<VarOp>,
    defaults: Vec<InstantDefaultOp>,
}

impl DecodeProgram {
    /// A program for rows with heads of form `head`, which decodes the columns of `current` for
    /// which `wanted` returns true. `slot` tells where the rows have a column with its number in
    /// `current`; `None` means that they lack it.
    pub(super) fn new(
        head: RowHead,
        current: &RowLayout,
        wanted: impl Fn(usize) -> bool,
        slot: impl Fn(usize, &Column) -> Result<Option<ColumnSlot>>,
    ) -> Result<Self> {
        let mut program = Self {
            head,
            clear: Vec::new(),
            nulls: Vec::new(),
            runs: Vec::new(),
            vars: Vec::new(),
            defaults: Vec::new(),
        };
        for (i, column) in current.columns().iter().enumerate() {
            if column.stored && wanted(i) {
                program.add(column, slot(i, column)?)?;
            }
        }
        // The loop above has added the steps in the order of the columns in the newest row layout.
        // The stored row may have its columns in another order, and the program must read it from
        // front to back, so sort the steps.
        program.vars.sort_by_key(|op| op.index);
        program.runs.sort_by_key(|run| run.row);
        let mut merged = Vec::with_capacity(program.runs.len());
        for run in &program.runs {
            push_run(&mut merged, run.record, run.row, run.len);
        }
        program.runs = merged;
        Ok(program)
    }

    fn add(&mut self, column: &Column, slot: Option<ColumnSlot>) -> Result<()> {
        if let Some(null) = column.null {
            match self.clear.iter_mut().find(|n| n.offset == null.offset) {
                Some(byte) => byte.mask |= null.mask,
                None => self.clear.push(null),
            }
        }
        let target = ColumnTarget {
            offset: column.offset,
            kind: column.kind,
        };
        let Some(slot) = slot else {
            return InstantDefaultOp::add(&mut self.defaults, column, target);
        };
        match slot.place {
            ColumnPosition::Fixed(row) => self.runs.push(CopyRange {
                record: column.offset,
                row,
                len: column.kind.record_len(),
            }),
            ColumnPosition::Var(index) => self.vars.push(VarOp {
                index,
                id: column.id,
                target,
            }),
        }
        if let (Some(bit), Some(record)) = (slot.null, column.null) {
            self.nulls.push(NullOp {
                row_byte: bit / 8,
                row_mask: 1 << (bit % 8),
                record,
            });
        }
        Ok(())
    }

    /// Decodes a row that has no blob references. `record` has at least the length of the newest
    /// layout.
    #[inline]
    pub(super) fn run(
        &self,
        value: Value<'_>,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<()> {
        self.run_head(value.head, record)?;
        if !self.vars.is_empty() {
            self.run_vars(value.tail, record, blobs, |_, _| false)?;
        }
        self.run_defaults(record, blobs)
    }

    /// Decodes a row some of whose columns are in blob files, as `refs` says. The wanted columns
    /// among these are added to `wanted`.
    pub(super) fn run_with_refs(
        &self,
        value: Value<'_>,
        refs: &[BlobRef],
        record: &mut [u8],
        blobs: &mut BlobBuf,
        wanted: &mut Vec<OutOfLineColumn>,
    ) -> Result<()> {
        self.run_head(value.head, record)?;
        if !self.vars.is_empty() {
            self.run_vars(value.tail, record, blobs, |op, inline| {
                let found = refs.iter().find(|blob| blob.column == op.id);
                let found = found.filter(|_| inline.is_empty());
                wanted.extend(found.map(|&blob| OutOfLineColumn {
                    blob,
                    target: op.target,
                }));
                found.is_some()
            })?;
        }
        self.run_defaults(record, blobs)
    }

    #[inline]
    fn run_head(&self, head: &[u8], record: &mut [u8]) -> Result<()> {
        if head.len() != self.head.len {
            return Err(damaged("length of the fixed columns"));
        }
        let (header, fixed) = head.split_at(self.head.bitmap_at + self.head.bitmap_len);
        let bitmap = &header[self.head.bitmap_at..];
        for null in &self.clear {
            record[null.offset as usize] &= !null.mask;
        }
        if bitmap.iter().any(|&byte| byte != 0) {
            for op in &self.nulls {
                if bitmap[op.row_byte as usize] & op.row_mask != 0 {
                    record[op.record.offset as usize] |= op.record.mask;
                }
            }
        }
        for run in &self.runs {
            let (to, from, len) = (run.record as usize, run.row as usize, run.len as usize);
            copy_field(&mut record[to..to + len], &fixed[from..from + len]);
        }
        Ok(())
    }

    fn run_defaults(&self, record: &mut [u8], blobs: &mut BlobBuf) -> Result<()> {
        self.defaults
            .iter()
            .try_for_each(|op| op.run(record, blobs))
    }

    /// Decodes the wanted variable columns. `elsewhere` is called with each such column and its
    /// bytes in the row. It returns `true` if the value is in a blob file; then nothing is written
    /// to `record`.
    #[inline]
    fn run_vars(
        &self,
        tail: &[u8],
        record: &mut [u8],
        blobs: &mut BlobBuf,
        mut elsewhere: impl FnMut(&VarOp, &[u8]) -> bool,
    ) -> Result<()> {
        let (mut lengths, mut bytes) = split_tail(tail)?;
        let mut next = 0;
        for op in &self.vars {
            loop {
                let len = take_len(&mut lengths)?;
                let (value, rest) = bytes
                    .split_at_checked(len)
                    .ok_or_else(|| damaged("variable columns end early"))?;
                bytes = rest;
                next += 1;
                if next > op.index {
                    if !elsewhere(op, value) {
                        op.target.write(value, record, |bytes| blobs.put(bytes))?;
                    }
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Copies `from` to `to`, which has the same length. Most copied ranges are single integers, for
/// which a call of `memcpy` would cost more than the copy itself.
#[inline]
fn copy_field(to: &mut [u8], from: &[u8]) {
    if let (Ok(to), Ok(from)) = (<&mut [u8; 4]>::try_from(&mut *to), from.try_into()) {
        *to = from;
    } else if let (Ok(to), Ok(from)) = (<&mut [u8; 8]>::try_from(&mut *to), from.try_into()) {
        *to = from;
    } else {
        to.copy_from_slice(from);
    }
}

#[inline]
fn take_len(lengths: &mut &[u8]) -> Result<usize> {
    varint::take_u64(lengths)
        .and_then(|len| usize::try_from(len).ok())
        .ok_or_else(|| damaged("length of a variable column"))
}
