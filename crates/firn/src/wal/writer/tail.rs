//! Commits that wait for the operating system only: the last group grows in its block.
//!
//! A group owns whole blocks, so small commits that nobody gathers would each take a block of the
//! log and of the device. Through the page cache a block may be written again at no cost: the
//! device sees it once, at the next sync. After a power cut an earlier version of such a group may be
//! there with later groups behind it; these tell how many records it should have.

use super::super::frame::{GROUP_HEADER, GroupHeader};
use super::Shared;
use super::state::{Group, State};
use crate::base::Result;
use crate::env::{AlignedBuf, BLOCK};

/// Open groups up to this size are written under the mutex: copying them takes less time than the
/// switches that the others would need to sleep and wake.
const INLINE_MAX: usize = 64 << 10;

/// The last group written, while it may grow.
///
/// Invariants: it fills one block at most, so that the process can be killed before or after its
/// block is in the page cache but not in between; it was never durable, and no sync has begun since
/// it was written (a sync that has begun may be writing the block out, and what it makes durable
/// must not be torn by a later version of it); no group lies behind it.
pub(super) struct Tail {
    header: GroupHeader,
    /// Header and records, without padding.
    buf: AlignedBuf,
    offset: u64,
}

impl Tail {
    /// The group that was just written, if it leaves room in its block. Otherwise its buffer.
    fn of(group: Group) -> Result<Self, AlignedBuf> {
        let Group {
            header,
            mut buf,
            offset,
            ..
        } = group;
        let len = GROUP_HEADER + header.payload_len as usize;
        if len >= BLOCK {
            return Err(buf);
        }
        buf.truncate(len);
        Ok(Self {
            header,
            buf,
            offset,
        })
    }

    fn has_room_for(&self, open: &AlignedBuf) -> bool {
        self.buf.len() + open.len() - GROUP_HEADER <= BLOCK
    }
}

impl Shared {
    /// Hands the open group to the operating system under the mutex, if nothing else is being
    /// written and nobody waits to see it durable.
    pub(super) fn write_inline(&self, state: &mut State) {
        let alone = state.progress.writing() == 0 && !state.open_wanted_durable();
        if !alone || state.failed || state.open.is_empty() || state.open.len() > INLINE_MAX {
            return;
        }
        let health = &self.segments.health;
        let tail = state.tail.take();
        let written = health.check().and_then(|()| match tail {
            Some(tail) if tail.has_room_for(&state.open) => grow(state, tail),
            _ => begin(state),
        });
        if let Err(error) = written {
            self.fail(state, error);
        }
    }
}

fn grow(state: &mut State, mut tail: Tail) -> Result<()> {
    let records = state.take_open_records();
    tail.buf
        .extend_from_slice(&state.open.as_slice()[GROUP_HEADER..]);
    state.open.clear();
    state.sealed = state.appended;
    tail.header.payload_len = (tail.buf.len() - GROUP_HEADER) as u32;
    tail.header.records += records;
    state.last_records = tail.header.records;
    tail.header.known_synced = state.progress.durable().group;
    let len = tail.buf.len();
    tail.header
        .seal(&mut tail.buf, state.segment.id, tail.offset);
    state.segment.file.write_at(tail.offset, &tail.buf)?;
    tail.buf.truncate(len);
    state.progress.grow(tail.header.number, state.sealed);
    state.tail = Some(tail);
    Ok(())
}

fn begin(state: &mut State) -> Result<()> {
    let mut group = state.seal(false);
    group.write()?;
    state.note_written(&group);
    match Tail::of(group) {
        Ok(tail) => state.tail = Some(tail),
        Err(spent) => state.keep_buffer(spent),
    }
    Ok(())
}
