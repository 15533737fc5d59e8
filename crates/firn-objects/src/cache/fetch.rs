//! From the store into local files, and out of them.

use super::chunk::{ChunkFile, Seen};
use super::flights::Pilot;
use super::limit::Evicted;
use super::{Shared, add};
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A chunk that this thread reads.
pub type Claimed<'a> = (u32, Pilot<'a>);

impl Shared {
    /// Reads neighbouring chunks in one request. The bytes go to those who wait, and into the local
    /// file. The caller has taken their room in flight.
    pub(super) fn fetch(&self, file: &Arc<ChunkFile>, run: Vec<Claimed<'_>>) -> Result<Bytes> {
        let chunks = run[0].0..run[run.len() - 1].0 + 1;
        let range = file.range_of(chunks.start).start..file.range_of(chunks.end - 1).end;
        let got = self.get(file, &range);
        for (chunk, pilot) in run {
            let answer = got.as_ref().map(|bytes| {
                let of = file.range_of(chunk);
                bytes.slice((of.start - range.start) as usize..(of.end - range.start) as usize)
            });
            if let Ok(bytes) = &answer {
                self.keep(file, chunk, bytes);
            }
            pilot.land(answer.map_err(Clone::clone));
        }
        got
    }

    pub(super) fn get(&self, file: &ChunkFile, range: &Range<u64>) -> Result<Bytes> {
        add(&self.counters.requests, 1);
        let got = self.store.get_range(file.name(), range.clone())?;
        if got.len() as u64 != range.end - range.start {
            let text = format!("{}: {} bytes instead of {range:?}", file.name(), got.len());
            return Err(Error::new(ErrorKind::Damaged, text));
        }
        add(&self.counters.fetched_bytes, got.len() as u64);
        Ok(got)
    }

    /// Writes a chunk to the local file. If that fails, it is not kept: reads do without.
    fn keep(&self, file: &Arc<ChunkFile>, chunk: u32, bytes: &[u8]) {
        if !file.begin_write(chunk) {
            return;
        }
        let (fits, evicted) = self.limit.lock().reserve(file, chunk);
        self.punch(evicted);
        // The disk may not have given back the room that it was to have.
        if !fits || self.limit.lock().cancel_if_over(file, chunk) {
            file.set_absent(chunk);
            return;
        }
        let opened = self.handles.get(&*self.files, file, true);
        let written = opened.and_then(|local| local.write_at(bytes, file.range_of(chunk).start));
        let mut limit = self.limit.lock();
        if written.is_ok() {
            limit.insert(file, chunk);
            return;
        }
        limit.give_back(file, chunk);
        drop(limit);
        add(&self.counters.not_written, 1);
        // A part of it may be there.
        self.punch(vec![(file.clone(), chunk)]);
    }

    /// Reads bytes of one chunk from the local file. None if it is not there, or leaves meanwhile.
    pub(super) fn read_local(
        &self,
        file: &Arc<ChunkFile>,
        chunk: u32,
        offset: u64,
        into: &mut [u8],
    ) -> Option<Seen> {
        let seen = file.seen(chunk)?;
        let opened = self.handles.get(&*self.files, file, false);
        let read = opened.and_then(|local| match local.read_at(into, offset)? {
            count if count == into.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        if read.is_err() {
            self.drop_chunk(file, chunk, seen);
            return None;
        }
        // An eviction changes the state of a chunk before it punches the hole.
        (file.seen(chunk) == Some(seen)).then_some(seen)
    }

    /// Bytes of the chunk are wrong, or cannot be read.
    pub(super) fn drop_chunk(&self, file: &Arc<ChunkFile>, chunk: u32, seen: Seen) {
        if self.limit.lock().take_out(file, chunk, seen) {
            add(&self.counters.damaged, 1);
            self.punch(vec![(file.clone(), chunk)]);
        }
    }

    /// Gives the room of chunks back. Until that is done nobody writes them, and they are counted.
    pub(super) fn punch(&self, evicted: Vec<Evicted>) {
        let stuck = self.limit.lock().take_stuck();
        for (file, chunk) in evicted.into_iter().chain(stuck) {
            let opened = self.handles.get(&*self.files, &file, false);
            match opened.and_then(|local| local.punch_hole(file.range_of(chunk))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.limit.lock().add_stuck((file, chunk));
                }
                _ => file.set_absent(chunk),
            }
        }
    }
}
