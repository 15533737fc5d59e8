//! The memory that reads of a part of a value take.

use super::rows::*;
use super::world::*;
use firn::table::{Cursor, LockWait, PartialColumn, ReadMode, RowScratch, WriteFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Resident memory of `bytes`, in bytes of whole pages. `/proc/self/pagemap` has 64 bits for each
/// page; the highest one says whether the page is present.
fn resident(bytes: &[u8]) -> usize {
    #[allow(clippy::disallowed_methods)] // Not a file of the engine.
    let pages = File::open("/proc/self/pagemap").unwrap();
    let first = bytes.as_ptr() as usize / PAGE;
    let last = (bytes.as_ptr() as usize + bytes.len() - 1) / PAGE;
    let mut table = vec![0; (last - first + 1) * 8];
    pages.read_exact_at(&mut table, first as u64 * 8).unwrap();
    let there = table.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0);
    there.count() * PAGE
}

#[test]
fn a_length_and_a_beginning_take_no_memory_for_the_rest() {
    const LEN: usize = 48 << 20;
    let mut world = World::new(0);
    let mut txn = world.session();
    let mut scratch = RowScratch::default();
    for id in 0..3 {
        let row = Row {
            b: vec![5 + id as u8; LEN],
            ..Row::default()
        };
        assert!(resident(&row.b) >= LEN);
        let (table, flags) = (&world.table, WriteFlags::default());
        // SAFETY: the blob columns point into `row`, which outlives the call.
        unsafe { table.insert(&mut txn, &record(id, &row), flags, &mut scratch) }.unwrap();
    }
    txn.commit().unwrap();
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    let part = PartialColumn {
        column: 3,
        prefix: 1000,
        length: true,
    };
    cursor.set_columns(Some(&[9]), false, &[part]).unwrap();
    let mut record = vec![0; RECORD];
    let mut on = cursor.first(&mut txn, &mut record).unwrap();
    for id in 0..3 {
        assert!(on);
        let number = |at: usize, len: usize| &record[at..at + len];
        let len = u32::from_le_bytes(number(B_AT, 4).try_into().unwrap());
        let address = usize::from_ne_bytes(number(B_AT + 4, 8).try_into().unwrap());
        // SAFETY: `first` or `next` stored length and address of the cursor's own buffer, which
        // stays valid until the cursor moves, below.
        let value = unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) };
        assert_eq!(value.len(), LEN);
        assert_eq!(value[..1000], [5 + id; 1000]);
        // The kernel may have read up to one huge page more at each end.
        let memory = resident(value);
        assert!(memory < 8 << 20, "{memory} bytes");
        on = cursor.next(&mut txn, &mut record).unwrap();
    }
    assert!(!on);
}
