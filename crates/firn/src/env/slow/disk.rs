//! The model of a slow disk: how long an operation takes, given those before it. No clock, no
//! threads: the caller passes the time.

use crate::base::{Error, Result};
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A longer read or write counts as several operations, as with block storage of a cloud.
const OPERATION_MAX: u64 = 256 << 10;
/// A disk that was idle owes nobody: it serves this many nanoseconds' worth of operations and bytes
/// at once. Disks of a cloud allow more, but then a short test would meet no limit.
const BURST_NS: u64 = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const MB: NonZeroU64 = NonZeroU64::new(1_000_000).unwrap();
/// The units of the parts of a text, and the largest number of each.
const UNITS: [(&str, u64); 3] = [
    ("us", 10_000_000),
    ("iops", 1_000_000_000),
    ("MBps", 1_000_000_000),
];

/// What a slow disk can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpeed {
    /// Least duration of each operation, microseconds.
    pub latency_us: u64,
    /// Operations a second, reads and writes together; `None` for no limit.
    pub iops: Option<NonZeroU64>,
    /// Bytes a second, read and written together; `None` for no limit.
    pub bytes_per_s: Option<NonZeroU64>,
}

impl FromStr for DiskSpeed {
    type Err = Error;

    /// Reads a text as `120us` or `500us,3000iops,125MBps`: each part at most once, in any order.
    fn from_str(text: &str) -> Result<Self> {
        let mut parts: [Option<NonZeroU64>; 3] = [None; 3];
        for part in text.split(',') {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = part.split_at(digits);
            let known = UNITS.iter().position(|(name, _)| *name == unit);
            let Some(at) = known.filter(|&at| digits > 0 && parts[at].is_none()) else {
                return Err(Error::invalid(format_args!(
                    "'{text}' describes no disk: '120us' or '500us,3000iops,125MBps' does, each \
                     unit once and no spaces"
                )));
            };
            let max = UNITS[at].1;
            let number = number.parse::<NonZeroU64>().ok();
            parts[at] = number.filter(|number| number.get() <= max);
            if parts[at].is_none() {
                return Err(Error::invalid(format_args!(
                    "'{text}' describes no disk: {unit} is from 1 to {max}"
                )));
            }
        }
        let [latency_us, iops, mbps] = parts;
        Ok(Self {
            latency_us: latency_us.map_or(0, NonZeroU64::get),
            iops,
            bytes_per_s: mbps.map(|mbps| mbps.saturating_mul(MB)),
        })
    }
}

/// A token bucket that gets `per_s` tokens a second, kept as the moment at which it will be full
/// again, in nanoseconds.
struct Bucket {
    per_s: NonZeroU64,
    full_at: AtomicU64,
}

impl Bucket {
    fn new(per_s: NonZeroU64) -> Self {
        Self {
            per_s,
            full_at: AtomicU64::new(0),
        }
    }

    /// Takes tokens at `now`, in nanoseconds; returns the moment at which they are there.
    fn take(&self, now: u64, tokens: u64) -> u64 {
        let cost = u128::from(tokens) * u128::from(SECOND_NS) / u128::from(self.per_s.get());
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let after = |full_at: u64| full_at.max(now).saturating_add(cost);
        let set = |full_at| Some(after(full_at));
        let before = self
            .full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        let before = before.unwrap_or_else(|before| before);
        // A bucket has room for one token at least.
        let room = BURST_NS.max(SECOND_NS / self.per_s);
        after(before).saturating_sub(room).max(now)
    }
}

/// A disk of limited speed. All its operations share its limits.
pub(super) struct Disk {
    latency_ns: u64,
    operations: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Disk {
    pub(super) fn new(speed: DiskSpeed) -> Self {
        Self {
            latency_ns: speed.latency_us.saturating_mul(1000),
            operations: speed.iops.map(Bucket::new),
            bytes: speed.bytes_per_s.map(Bucket::new),
        }
    }

    /// Takes `bytes` bytes and the operations that move them at `now`; returns the moment at which
    /// the disk has admitted them. Times are in nanoseconds.
    fn admit(&self, now: u64, bytes: u64) -> u64 {
        let operations = bytes.div_ceil(OPERATION_MAX).max(1);
        let admitted = self.operations.as_ref().map(|b| b.take(now, operations));
        let moved = self.bytes.as_ref().map(|b| b.take(now, bytes));
        now.max(admitted.unwrap_or(0)).max(moved.unwrap_or(0))
    }

    /// The end of an operation whose last bytes the disk has admitted at `admitted`.
    pub(super) fn end(&self, admitted: u64) -> u64 {
        admitted.saturating_add(self.latency_ns)
    }

    /// Begins an operation at `now`; returns its end.
    pub(super) fn operate(&self, now: u64, bytes: u64) -> u64 {
        self.end(self.admit(now, bytes))
    }

    /// Begins an operation at `now` that takes its bytes piece by piece. Returns the moments at
    /// which the disk has admitted the pieces. The caller waits for each of them before it asks for
    /// the next, so that operations which begin meanwhile wait for one piece and not for all.
    pub(super) fn pieces(&self, now: u64, bytes: u64) -> impl Iterator<Item = u64> {
        let (mut at, mut left) = (now, Some(bytes));
        std::iter::from_fn(move || {
            let all = left?;
            let piece = all.min(OPERATION_MAX);
            left = Some(all - piece).filter(|&left| left > 0);
            at = self.admit(at, piece);
            Some(at)
        })
    }
}
