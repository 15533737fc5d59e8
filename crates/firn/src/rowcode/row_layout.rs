//! The layout of one schema version: where the row has each column, and how rows are encoded.

use super::{Column, ColumnKind, RowVersion, StoredColumn, damaged};
use crate::base::record_buffer::{blob_bytes, take_len};
use crate::base::{Error, Result, varint};

/// Where the row has a stored column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnPosition {
    /// Offset in the area of the fixed columns, bytes.
    Fixed(u32),
    /// Number among the variable columns.
    Var(u32),
}

/// Where the row has a stored column and the column's NULL bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ColumnSlot {
    pub(super) place: ColumnPosition,
    /// Number of the column's bit in the null bitmap; `None` if the column is NOT NULL.
    pub(super) null: Option<u32>,
}

/// The form of the heads of one schema version. They all have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowHead {
    /// Offset of the null bitmap: the length of the schema version, which is a varint.
    pub(super) bitmap_at: usize,
    pub(super) bitmap_len: usize,
    /// Length of the head.
    pub(super) len: usize,
}

impl RowHead {
    /// The heads of schema version `version`, with `nullable` bits in the null bitmap and
    /// `fixed_len` bytes of fixed columns.
    pub(super) fn new(version: u32, nullable: u32, fixed_len: u32) -> Self {
        let mut rest = version;
        let mut bitmap_at = 1;
        while rest >= 0x80 {
            rest >>= 7;
            bitmap_at += 1;
        }
        let bitmap_len = nullable.div_ceil(8) as usize;
        Self {
            bitmap_at,
            bitmap_len,
            len: bitmap_at + bitmap_len + fixed_len as usize,
        }
    }
}

/// A range of the record buffer that is copied at once, and its offset in the row's area of fixed
/// columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyRange {
    pub(super) record: u32,
    pub(super) row: u32,
    pub(super) len: u32,
}

/// The row layout of one schema version.
///
/// Invariants: the row has the stored columns in the order of the definition. A fixed column that
/// is NULL takes the same space as any other value (filled with zeros), and a variable column that
/// is NULL has length 0. So the offset of a fixed column depends only on the layout, not on the
/// row.
///
/// Rejected: leaving out NULL columns. It saves only bytes that compress well anyway, and each
/// offset would depend on the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLayout {
    version: u32,
    record_len: u32,
    columns: Vec<Column>,
    slots: Vec<Option<ColumnSlot>>,
    runs: Vec<CopyRange>,
    nullable: u32,
    fixed_len: u32,
    vars: u32,
}

impl RowLayout {
    /// The layout of schema version `version`, for record buffers of `record_len` bytes with these
    /// columns.
    ///
    /// # Errors
    /// `InvalidArgument` if the definition of a column is inconsistent or places it outside the
    /// buffer, or if two columns have the same id.
    pub fn new(version: u32, record_len: u32, columns: Vec<Column>) -> Result<Self> {
        let mut layout = Self {
            version,
            record_len,
            slots: Vec::with_capacity(columns.len()),
            runs: Vec::new(),
            nullable: 0,
            fixed_len: 0,
            vars: 0,
            columns: Vec::new(),
        };
        for column in &columns {
            check(column, record_len)?;
            let slot = column.stored.then(|| layout.place(column));
            layout.slots.push(slot);
        }
        let mut ids: Vec<u32> = columns.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid("two columns with one id"));
        }
        layout.columns = columns;
        Ok(layout)
    }

    fn place(&mut self, column: &Column) -> ColumnSlot {
        let place = match column.kind {
            ColumnKind::Fixed { len } => {
                let row = self.fixed_len;
                push_run(&mut self.runs, column.offset, row, len);
                self.fixed_len += len;
                ColumnPosition::Fixed(row)
            }
            _ => {
                self.vars += 1;
                ColumnPosition::Var(self.vars - 1)
            }
        };
        let null = column.null.map(|_| {
            self.nullable += 1;
            self.nullable - 1
        });
        ColumnSlot { place, null }
    }

    /// The schema version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Length of the record buffer in bytes.
    pub fn record_len(&self) -> usize {
        self.record_len as usize
    }

    /// The columns in the order of the definition.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn slot(&self, column: usize) -> Option<ColumnSlot> {
        self.slots[column]
    }

    /// The columns as rows of this version store them.
    pub fn row_version(&self) -> RowVersion {
        RowVersion {
            number: self.version,
            columns: self.columns.iter().filter_map(StoredColumn::of).collect(),
        }
    }

    pub(super) fn head(&self) -> RowHead {
        RowHead::new(self.version, self.nullable, self.fixed_len)
    }

    fn bitmap_len(&self) -> usize {
        self.nullable.div_ceil(8) as usize
    }

    /// Encodes the row in `record` and appends it to `head` and `tail`.
    ///
    /// # Safety
    /// For each stored blob column of `record` that is neither NULL nor empty, the pointer must
    /// point to at least as many bytes as the column's length says. They must be readable and
    /// unchanged while `record` is borrowed.
    ///
    /// # Errors
    /// `InvalidArgument` if `record` is too short or a length in it exceeds its maximum.
    pub unsafe fn encode(
        &self,
        record: &[u8],
        head: &mut Vec<u8>,
        tail: &mut Vec<u8>,
    ) -> Result<()> {
        // SAFETY: the caller of this function keeps the same requirement: in `record`, the pointers
        // of stored blob columns cover the lengths.
        unsafe { self.encode_without(record, &[], head, tail) }
    }

    /// As [`Self::encode`], but stores length 0 and no bytes for the variable columns whose ids are
    /// in `left_out`, because their values are in blob files. The caller appends the references to
    /// them to `tail`.
    ///
    /// # Safety
    /// As for [`Self::encode`].
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub unsafe fn encode_without(
        &self,
        record: &[u8],
        left_out: &[u32],
        head: &mut Vec<u8>,
        tail: &mut Vec<u8>,
    ) -> Result<()> {
        if record.len() < self.record_len() {
            return Err(Error::invalid("record buffer too short"));
        }
        self.encode_head(record, head);
        if self.vars == 0 {
            return Ok(());
        }
        let start = tail.len();
        tail.push(0);
        for column in self.var_columns() {
            if left_out.contains(&column.id) {
                tail.push(0);
                continue;
            }
            // SAFETY: the caller guarantees that the pointer of each stored blob column covers its
            // length while `record` is borrowed, and `var_bytes` requires nothing else.
            let bytes = unsafe { var_bytes(column, record) }?;
            varint::put_u64(tail, bytes.len() as u64);
        }
        let lengths = tail.len() - start - 1;
        if lengths < 0x80 {
            tail[start] = lengths as u8;
        } else {
            let mut prefix = Vec::with_capacity(varint::MAX_LEN);
            varint::put_u64(&mut prefix, lengths as u64);
            tail.splice(start..=start, prefix);
        }
        for column in self.var_columns() {
            if left_out.contains(&column.id) {
                continue;
            }
            // SAFETY: the loop above has called `var_bytes` for the same column and record, so the
            // caller's guarantee covers this call too.
            let bytes = unsafe { var_bytes(column, record) }?;
            tail.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Whether two record buffers hold the same row. Of variable columns whose ids are in
    /// `left_out`, only whether they are NULL is compared.
    ///
    /// # Safety
    /// As for [`Self::encode`], for both records.
    ///
    /// # Errors
    /// As for [`Self::encode`]. But if an earlier column differs, later columns are not checked.
    pub unsafe fn is_same(&self, a: &[u8], b: &[u8], left_out: &[u32]) -> Result<bool> {
        if a.len().min(b.len()) < self.record_len() {
            return Err(Error::invalid("record buffer too short"));
        }
        for column in self.columns.iter().filter(|column| column.stored) {
            let is_null = |record| column.null.is_some_and(|null| null.is_set(record));
            if is_null(a) != is_null(b) {
                return Ok(false);
            }
            let left_out = !column.kind.is_fixed() && left_out.contains(&column.id);
            if is_null(a) || left_out {
                continue;
            }
            let same = match column.kind {
                // CHAR is padded in the record buffer, so equal text has equal bytes.
                ColumnKind::Fixed { .. } | ColumnKind::Char { .. } => {
                    field(column, a) == field(column, b)
                }
                // SAFETY: the caller guarantees valid blob pointers in both records, and the slices
                // are used only in this comparison.
                _ => unsafe { var_bytes(column, a)? == var_bytes(column, b)? },
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The bytes that the row stores for the variable column with number `column` in the
    /// definition; empty if it is NULL.
    ///
    /// # Safety
    /// As for [`Self::encode`].
    ///
    /// # Errors
    /// `InvalidArgument` if `record` is too short, if a length in it exceeds its maximum, or if the
    /// column is not both stored and variable.
    pub unsafe fn variable<'a>(&self, column: usize, record: &'a [u8]) -> Result<&'a [u8]> {
        let column = self.columns.get(column);
        match column.filter(|c| c.stored && !c.kind.is_fixed()) {
            Some(column) if record.len() >= self.record_len() => {
                // SAFETY: the caller guarantees that a blob's pointer covers its length while
                // `record` is borrowed, and the result has the lifetime of that borrow.
                unsafe { var_bytes(column, record) }
            }
            _ => Err(Error::invalid("no variable column of this record")),
        }
    }

    fn var_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns
            .iter()
            .filter(|c| c.stored && !c.kind.is_fixed())
    }

    fn encode_head(&self, record: &[u8], head: &mut Vec<u8>) {
        varint::put_u64(head, u64::from(self.version));
        let bitmap_at = head.len();
        let fixed_at = bitmap_at + self.bitmap_len();
        head.resize(fixed_at, 0);
        head.reserve(self.fixed_len as usize);
        for run in &self.runs {
            let from = run.record as usize;
            head.extend_from_slice(&record[from..from + run.len as usize]);
        }
        if self.nullable == 0 {
            return;
        }
        for (column, slot) in self.columns.iter().zip(&self.slots) {
            let (Some(null), Some(slot)) = (column.null, slot) else {
                continue;
            };
            if !null.is_set(record) {
                continue;
            }
            let bit = slot.null.expect("nullable columns have a bit");
            head[bitmap_at + bit as usize / 8] |= 1 << (bit % 8);
            if let ColumnPosition::Fixed(at) = slot.place {
                let at = fixed_at + at as usize;
                head[at..at + column.kind.record_len() as usize].fill(0);
            }
        }
    }
}

/// Splits the tail of a row without blob references into the lengths of the variable columns and
/// their bytes.
///
/// # Errors
/// `Corruption`, without file name, if the tail is malformed.
#[inline]
pub fn split_tail(tail: &[u8]) -> Result<(&[u8], &[u8])> {
    if tail.is_empty() {
        return Ok((tail, tail));
    }
    let mut rest = tail;
    varint::take_u64(&mut rest)
        .and_then(|len| rest.split_at_checked(usize::try_from(len).ok()?))
        .ok_or_else(|| damaged("lengths of the variable columns"))
}

pub(super) fn push_run(runs: &mut Vec<CopyRange>, record: u32, row: u32, len: u32) {
    if let Some(last) = runs.last_mut()
        && last.record + last.len == record
        && last.row + last.len == row
    {
        last.len += len;
    } else if len > 0 {
        runs.push(CopyRange { record, row, len });
    }
}

fn check(column: &Column, record_len: u32) -> Result<()> {
    column.kind.check()?;
    let end = u64::from(column.offset) + u64::from(column.kind.record_len());
    let null_outside = column.null.is_some_and(|n| n.offset >= record_len);
    if end > u64::from(record_len) || null_outside {
        return Err(Error::invalid(format_args!(
            "column {} lies outside the record",
            column.id
        )));
    }
    Ok(())
}

/// The bytes of the column's field in the record buffer.
fn field<'a>(column: &Column, record: &'a [u8]) -> &'a [u8] {
    let at = column.offset as usize;
    &record[at..at + column.kind.record_len() as usize]
}

/// The bytes that the row stores for a variable column: without length and padding, empty if the
/// column is NULL.
///
/// # Safety
/// As for [`RowLayout::encode`].
unsafe fn var_bytes<'a>(column: &Column, record: &'a [u8]) -> Result<&'a [u8]> {
    if column.null.is_some_and(|null| null.is_set(record)) {
        return Ok(&[]);
    }
    let field = field(column, record);
    match column.kind {
        ColumnKind::Fixed { .. } => Ok(field),
        ColumnKind::Char { pad, .. } => Ok(&field[..pad.stripped_len(field)]),
        ColumnKind::VarChar { len_bytes, .. } => {
            let (len, bytes) = take_len(field, len_bytes);
            bytes
                .get(..len)
                .ok_or_else(|| Error::invalid("VARCHAR longer than its maximum"))
        }
        ColumnKind::Blob { len_bytes } => {
            // SAFETY: the caller guarantees that the pointer of a blob that is neither NULL nor
            // empty covers its length, readable and unchanged while `record` is borrowed.
            // `blob_bytes` itself handles a null pointer.
            unsafe { blob_bytes(field, len_bytes) }
        }
    }
}
