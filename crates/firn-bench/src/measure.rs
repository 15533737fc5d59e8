//! Figures of the operating system about this process and a directory.

use crate::engine::Result;
use rustix::fs::{Advice, fadvise};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Clock ticks of a second in `/proc/self/stat`; Linux shows 100 to user space everywhere.
const TICKS_PER_SECOND: f64 = 100.0;

/// Pause between two rounds of [`keep_uncached`].
const EVICTION_PAUSE: Duration = Duration::from_millis(20);

/// Bytes this process has sent to storage: `write_bytes` of `/proc/self/io`. Buffered writes count
/// when they make a page dirty, direct ones when they are sent.
pub fn device_written() -> Result<u64> {
    field(&fs::read_to_string("/proc/self/io")?, "write_bytes:", 1)
}

/// Resident memory of this process, now and at its largest, bytes.
pub fn resident() -> Result<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status")?;
    Ok((
        field(&status, "VmRSS:", 1024)?,
        field(&status, "VmHWM:", 1024)?,
    ))
}

fn field(text: &str, name: &str, unit: u64) -> Result<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .ok_or_else(|| format!("the system does not tell {name}"))?;
    let number = line.split_whitespace().next().unwrap_or_default();
    Ok(number.parse::<u64>()? * unit)
}

/// Processor time of all threads of this process, seconds.
pub fn processor_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The second field is the program's name in parentheses, which may itself contain spaces and
    // parentheses. So skip all up to the last parenthesis.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Processor time of this thread, nanoseconds.
pub fn thread_processor_ns() -> Result<u64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(stat.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Calls `visit` for every file below `dir`. Files that vanish meanwhile are left out.
fn for_each_file(dir: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => for_each_file(&path, visit),
            Ok(meta) => visit(&path, &meta),
            Err(_) => {}
        }
    }
}

/// Bytes that the files below `dir` take, without those for which `skip` is true.
pub fn disk_bytes(dir: &Path, skip: &dyn Fn(&Path) -> bool) -> u64 {
    let mut sum = 0;
    for_each_file(dir, &mut |path, meta| {
        if !skip(path) {
            sum += meta.blocks() * 512;
        }
    });
    sum
}

/// Drops the files below `dir` from the page cache again and again until `stop`. This stands in for
/// direct I/O if an engine has none.
pub fn keep_uncached(dir: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for_each_file(dir, &mut |path, _| {
            if let Ok(file) = fs::File::open(path) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        });
        std::thread::sleep(EVICTION_PAUSE);
    }
}
