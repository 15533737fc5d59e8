//! Room for a large append, prepared before the append.
//!
//! An append that does not fit the prepared segments prepares one of its own size, while its caller
//! holds the pipeline's mutex: all commits would wait until tens of MiB are written and synced. So
//! the caller of a large append first asks for the room, with nothing held.
//!
//! The next segment of the usual size stays as it is meanwhile, and small appends go on in it and
//! in those after it. So the id of the large segment is not known before its file is ready: the
//! file is created under a temporary name, and gets its id, its header and its name at the end,
//! behind the prepared segments. If the file cannot be created, nothing has changed.
//!
//! Worked example: the log is in segment 4, and 5 is prepared. While a file of 40 MiB is created,
//! small appends fill 4, 5 and a part of 6, and 7 is prepared. The file becomes segment 8. The
//! large append finds no room in 6 and 7, so it goes to 8, and 7 stays empty. If no large append
//! came, the log would go on to 7 and then to 8.

use super::super::frame::FIRST_GROUP;
use super::{FullDiskAccess, MAX_APPEND, OutcomeRoom, Shared, Wal, outcome_room};
use crate::base::health::FullDisk;
use crate::base::{Error, ErrorKind, Result};
use crate::env::{BLOCK, LogFile};
use parking_lot::MutexGuard;
use std::sync::Arc;

/// The room for a large append. Other large appends wait until it is dropped, so that they do not
/// take the room.
#[must_use]
pub struct RoomAhead<'a> {
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Wal {
    /// An append of at most this many bytes finds its room in an empty segment of the usual size,
    /// beside records that come before it.
    pub fn usual_append_max(&self) -> u64 {
        match self.shared.opts.discards {
            true => u64::MAX,
            false => self.shared.opts.segment_size / 2,
        }
    }

    /// Prepares the room for an append of at most `bytes` bytes with the effect `room`, if that is
    /// larger than [`Self::usual_append_max`] and the log has no such room ready. There is no
    /// promise: small appends may take the room first. Errors are left to the append, which may
    /// find other room. The caller drops the result after the append, and holds no mutex of an
    /// append before.
    pub fn prepare_room(&self, bytes: usize, room: OutcomeRoom) -> RoomAhead<'_> {
        if bytes as u64 <= self.usual_append_max() || bytes > MAX_APPEND {
            return RoomAhead { _turn: None };
        }
        let turn = self.shared.large_turn.lock();
        let _ = self.shared.prepare_room(bytes, room);
        RoomAhead { _turn: Some(turn) }
    }
}

impl Shared {
    fn prepare_room(&self, bytes: usize, kept: OutcomeRoom) -> Result<()> {
        if self.missing_room(bytes, kept)?.is_none() {
            return Ok(());
        }
        self.prepare_next(0, FullDiskAccess::Ordinary)?;
        let Some((room, durable)) = self.missing_room(bytes, kept)? else {
            return Ok(());
        };
        // Others may add records to the open group before the append.
        let others = (self.opts.segment_size / 2).next_multiple_of(BLOCK as u64);
        let size = FIRST_GROUP + room + others;
        let file = self.segments.create_aside(size, durable)?;
        self.place_large(size, file)
    }

    /// The room that an append of `bytes` bytes asks for, and whether commits wait for the device;
    /// `None` if a segment for it is ready. On a full disk the append itself finds what room there
    /// is.
    fn missing_room(&self, bytes: usize, kept: OutcomeRoom) -> Result<Option<(u64, bool)>> {
        let state = self.state.lock();
        self.check_open(&state)?;
        let is_full = self.segments.health.is_full(Some(FullDisk::Log)) || state.segment.is_none();
        let room = state.group_len(bytes) as u64 + outcome_room(state.outcomes_after(kept));
        let missing = !is_full && !state.has_ready(room);
        Ok(missing.then_some((room, state.wants_durable)))
    }

    /// Makes a file of `size` bytes, which was created aside, the segment behind those prepared.
    fn place_large(&self, size: u64, file: Arc<dyn LogFile>) -> Result<()> {
        let _preparing = self.preparing.lock();
        let id = {
            let state = self.state.lock();
            // A segment of the disk reserve would never be given back with another one behind it.
            let takes_reserve = state.ready.iter().any(|prepared| prepared.reserve);
            self.check_open(&state).and_then(|()| match takes_reserve {
                true => Err(Error::new(
                    ErrorKind::NoSpace,
                    "the log uses the disk reserve",
                )),
                false => Ok(state.id_behind()),
            })
        };
        let id = id.inspect_err(|_| self.segments.remove_aside())?;
        let segment = self.segments.begin_aside(id, size, file)?;
        self.state.lock().place(&segment);
        Ok(())
    }
}
