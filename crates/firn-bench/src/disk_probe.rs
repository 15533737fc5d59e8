//! Probes the disk beside the load: writes a block to the device from time to time.

use crate::engine::Result;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::pwrite;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

/// Blocks of the file. All are written at the start, so that no later write allocates.
const BLOCKS: u64 = 256;

/// Pause between two writes.
const PAUSE: Duration = Duration::from_millis(50);

#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// Writes blocks of `file`, one after the other, until `stop` is set. `worst_us` holds the time of
/// the longest write, microseconds, since the reader last reset it.
pub fn run(file: &Path, stop: &AtomicBool, worst_us: &AtomicU64) -> Result<()> {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT | OFlags::DSYNC;
    let file = open(file, flags, Mode::RUSR | Mode::WUSR)?;
    let block = Aligned([7; BLOCK]);
    for number in 0..BLOCKS {
        pwrite(&file, &block.0, number * BLOCK as u64)?;
    }
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        pwrite(&file, &block.0, number % BLOCKS * BLOCK as u64)?;
        worst_us.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        number += 1;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
