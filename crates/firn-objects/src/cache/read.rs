//! Reads through the cache.

use super::chunk::{ChunkFile, Seen};
use super::fetch::Claimed;
use super::flights::{Claim, Flight};
use super::{CHUNK_BYTES, IN_FLIGHT_PATIENCE, REQUEST_BYTES_MAX, Shared, add};
use crate::budget::Taken;
use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

/// Judges the bytes of a read, which begin where the read does: checks the checksums of its blocks.
pub type Verify<'a> = &'a dyn Fn(&[u8]) -> bool;

/// How often bytes are read that fail the caller's check. The first time they may come from the
/// local file, and be damaged there.
const TRIES: u32 = 4;

/// Chunks of the largest request.
pub(super) const REQUEST_CHUNKS_MAX: usize = (REQUEST_BYTES_MAX / CHUNK_BYTES) as usize;

/// Whether a read says something about the next ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// The chunk is more likely to be read again.
    Yes,
    /// It belongs to a scan, which reads each chunk in many pieces, once.
    No,
}

/// The answer to a read.
#[derive(Debug)]
pub struct CachedRead {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the read has waited for the store.
    pub is_fetched: bool,
}

/// The buffer of a read.
struct Reading<'a> {
    file: &'a Arc<ChunkFile>,
    range: Range<u64>,
    buffer: Vec<u8>,
    is_fetched: bool,
}

impl Reading<'_> {
    /// The range of the file that both the read and a chunk have.
    fn part(&self, chunk: u32) -> Range<u64> {
        let of = self.file.range_of(chunk);
        of.start.max(self.range.start)..of.end.min(self.range.end)
    }

    fn buffer(&mut self, part: &Range<u64>) -> &mut [u8] {
        let start = self.range.start;
        &mut self.buffer[(part.start - start) as usize..(part.end - start) as usize]
    }

    /// Copies from bytes of the file that begin at `from`.
    fn copy(&mut self, chunk: u32, bytes: &[u8], from: u64) {
        let part = self.part(chunk);
        let source = &bytes[(part.start - from) as usize..(part.end - from) as usize];
        self.buffer(&part).copy_from_slice(source);
    }
}

impl Shared {
    pub(super) fn read(
        &self,
        file: &Arc<ChunkFile>,
        range: Range<u64>,
        touch: Touch,
        verify: Verify<'_>,
    ) -> Result<CachedRead> {
        check_range(file, &range)?;
        let mut reading = Reading {
            file,
            buffer: vec![0; (range.end - range.start) as usize],
            range,
            is_fetched: false,
        };
        let chunks = file.chunks_of(&reading.range);
        for _ in 0..TRIES {
            let used = self.gather(&mut reading, chunks.clone(), touch)?;
            if verify(&reading.buffer) {
                return Ok(CachedRead {
                    bytes: reading.buffer,
                    is_fetched: reading.is_fetched,
                });
            }
            for (chunk, seen) in used {
                self.drop_chunk(file, chunk, seen);
            }
        }
        Err(damaged(file, &reading.range))
    }

    /// Reads past the cache, in pieces of at most 8 MiB: for compactions, which read everything
    /// once and then delete it. Whole chunks that are there are used.
    pub(super) fn read_past(
        &self,
        file: &Arc<ChunkFile>,
        range: Range<u64>,
        verify: Verify<'_>,
    ) -> Result<Vec<u8>> {
        check_range(file, &range)?;
        if file
            .chunks_of(&range)
            .all(|chunk| file.seen(chunk).is_some())
        {
            let read = self.read(file, range, Touch::No, verify);
            return read.map(|read| read.bytes);
        }
        for _ in 0..TRIES {
            let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
            let mut at = range.start;
            while at < range.end {
                let piece = at..range.end.min(at + REQUEST_BYTES_MAX);
                let _room = self.room_in_flight(file, piece.end - piece.start)?;
                bytes.extend_from_slice(&self.get(file, &piece)?);
                at = piece.end;
            }
            if verify(&bytes) {
                return Ok(bytes);
            }
        }
        Err(damaged(file, &range))
    }

    /// Fills the buffer once. Returns the chunks that were used and may be in the local file.
    fn gather(
        &self,
        reading: &mut Reading<'_>,
        chunks: Range<u32>,
        touch: Touch,
    ) -> Result<Vec<(u32, Seen)>> {
        let mut used = Vec::new();
        let mut wanted: Vec<u32> = chunks.collect();
        while !wanted.is_empty() {
            let missing = self.read_present(reading, wanted, touch, &mut used);
            wanted = self.fly(reading, missing, &mut used)?;
        }
        Ok(used)
    }

    /// Reads what the local file has. Returns the chunks that it has not.
    fn read_present(
        &self,
        reading: &mut Reading<'_>,
        wanted: Vec<u32>,
        touch: Touch,
        used: &mut Vec<(u32, Seen)>,
    ) -> Vec<u32> {
        let file = reading.file;
        let mut missing = Vec::new();
        for chunk in wanted {
            let part = reading.part(chunk);
            match self.read_local(file, chunk, part.start, reading.buffer(&part)) {
                Some(seen) => {
                    if touch == Touch::Yes {
                        file.touch(chunk);
                    }
                    add(&self.counters.hits, 1);
                    used.push((chunk, seen));
                }
                None => missing.push(chunk),
            }
        }
        missing
    }

    fn room_in_flight(&self, file: &ChunkFile, bytes: u64) -> Result<Taken<'_>> {
        self.in_flight
            .take(bytes, IN_FLIGHT_PATIENCE)
            .ok_or_else(|| {
                let text = format!("{}: too many reads of the store are waiting", file.name());
                Error::new(ErrorKind::Unreachable, text)
            })
    }

    /// Reads missing chunks from the store, as many as one request may have, or waits for those
    /// that somebody else reads. Returns the others, those that have come meanwhile, and those that
    /// somebody else has given up.
    fn fly(
        &self,
        reading: &mut Reading<'_>,
        missing: Vec<u32>,
        used: &mut Vec<(u32, Seen)>,
    ) -> Result<Vec<u32>> {
        let file = reading.file;
        let mut runs: Vec<Vec<Claimed<'_>>> = Vec::new();
        let mut theirs: Vec<(u32, Arc<Flight>)> = Vec::new();
        // A reader of a chunk that this thread has claimed waits for one request, not for many.
        let now = missing.len().min(REQUEST_CHUNKS_MAX);
        let mut again = missing[now..].to_vec();
        for chunk in missing[..now].iter().copied() {
            let is_there = || file.seen(chunk).is_some();
            match self.flights.claim((file.id(), chunk), is_there) {
                Claim::Mine(pilot) => push_run(&mut runs, (chunk, pilot)),
                Claim::Theirs(flight) => theirs.push((chunk, flight)),
                Claim::There => again.push(chunk),
            }
        }
        // Own chunks first: nobody may wait for somebody who waits.
        for run in runs {
            let chunks = run[0].0..run[run.len() - 1].0 + 1;
            let range = file.range_of(chunks.start).start..file.range_of(chunks.end - 1).end;
            let bytes = {
                let _room = self.room_in_flight(file, range.end - range.start)?;
                self.fetch(file, run)?
            };
            reading.is_fetched = true;
            for chunk in chunks {
                add(&self.counters.misses, 1);
                reading.copy(chunk, &bytes, range.start);
                used.extend(file.seen(chunk).map(|seen| (chunk, seen)));
            }
        }
        for (chunk, flight) in theirs {
            let Some(answer) = flight.wait() else {
                again.push(chunk);
                continue;
            };
            add(&self.counters.misses, 1);
            reading.is_fetched = true;
            reading.copy(chunk, &answer?, file.range_of(chunk).start);
            used.extend(file.seen(chunk).map(|seen| (chunk, seen)));
        }
        // Neighbours are one request.
        again.sort_unstable();
        Ok(again)
    }
}

/// Adds a chunk to the run that it continues, or begins one.
pub(super) fn push_run<'a>(runs: &mut Vec<Vec<Claimed<'a>>>, claimed: Claimed<'a>) {
    match runs.last_mut() {
        Some(run) if run[run.len() - 1].0 + 1 == claimed.0 => run.push(claimed),
        _ => runs.push(vec![claimed]),
    }
}

fn check_range(file: &ChunkFile, range: &Range<u64>) -> Result<()> {
    if range.start <= range.end && range.end <= file.bytes() {
        return Ok(());
    }
    let text = format!("{}: no bytes {range:?} of {}", file.name(), file.bytes());
    Err(Error::new(ErrorKind::Invalid, text))
}

fn damaged(file: &ChunkFile, range: &Range<u64>) -> Error {
    let text = format!(
        "{}: the bytes {} to {} of the object are damaged",
        file.name(),
        range.start,
        range.end
    );
    Error::new(ErrorKind::Damaged, text)
}
