mod concurrent;
mod corruption;
mod crash;
mod faults;
mod large_segment;
mod lifecycle;
mod reserve;
mod units;

use super::frame::FIRST_GROUP;
use super::*;
use crate::base::Result;
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::env::{Env, MemEnv, PosixEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn dir() -> PathBuf {
    PathBuf::from("/db/wal")
}

fn segment_path(id: SegmentId) -> PathBuf {
    dir().join(segment_name(id))
}

/// Small segments, and no background thread, so a test does the same each time it is executed.
fn options() -> WalOptions {
    WalOptions {
        segment_size: 8 * 4096,
        background: false,
        spare_segments_max: 2,
        ..WalOptions::default()
    }
}

fn open(env: &dyn CloneEnv, opts: WalOptions, first: SegmentId, prev: LogEnd) -> Result<Arc<Wal>> {
    let health = Arc::new(Health::new());
    let env = env.shared();
    Wal::create(env, &dir(), opts, health, Arc::new(Silent), first, prev)
}

trait CloneEnv {
    fn shared(&self) -> Arc<dyn Env>;
}

impl<E: Env + Clone> CloneEnv for E {
    fn shared(&self) -> Arc<dyn Env> {
        Arc::new(self.clone())
    }
}

/// A new log that begins with segment 1.
fn new_wal(env: &MemEnv) -> Arc<Wal> {
    open(env, options(), 1, LogEnd::default()).unwrap()
}

fn batch(seqno: u64, bytes: &[u8]) -> Record<'_> {
    Record::Batch {
        seqno,
        batch: bytes,
    }
}

/// Appends a batch and waits until it is durable.
fn commit(wal: &Wal, seqno: u64, bytes: &[u8]) -> Result<Appended> {
    let appended = wal.append(&[batch(seqno, bytes)], OutcomeRoom::Leave)?;
    wal.sync_to(appended.lsn)?;
    Ok(appended)
}

/// The seqnos of the batches replayed.
fn replayed(env: &dyn Env, first: SegmentId) -> Result<(Vec<u64>, ReplayEnd)> {
    let mut seqnos = Vec::new();
    let end = replay(env, &dir(), first, &mut |_, record| {
        if let Record::Batch { seqno, .. } = record {
            seqnos.push(seqno);
        }
        Ok(())
    })?;
    Ok((seqnos, end))
}

fn flip(env: &MemEnv, path: &Path, byte: u64) {
    env.damage(path, |bytes| bytes[byte as usize] ^= 0x10)
        .unwrap();
}
