//! The faults of a simulated store.

/// Faults, each in so many of 1,000 requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The request is lost: no answer, no effect.
    pub lost: u32,
    /// The answer is lost: the effect is there.
    pub lost_answer: u32,
    /// No answer, and the effect comes later, within `late_us`.
    pub late: u32,
    /// See [`Self::late`].
    pub late_us: u64,
    /// The request is executed twice.
    pub double: u32,
    /// The store asks for fewer requests.
    pub throttled: u32,
    /// A bit of what is read is another one.
    pub flip_read: u32,
    /// A bit of what is sent is another one; the store sees it by the SHA-256.
    pub flip_sent: u32,
    /// An upload in parts is gone when it is to be completed, as by a rule of the bucket.
    pub lost_upload: u32,
    /// A list shows the store as it was up to `stale_us` ago.
    pub stale: u32,
    /// See [`Self::stale`].
    pub stale_us: u64,
    /// A request takes up to this long, microseconds.
    pub latency_us: u64,
    /// How long callers wait for an answer that does not come, microseconds.
    pub timeout_us: u64,
}

impl Faults {
    /// All of them, each in `per_mille` of 1,000 requests.
    pub fn all(per_mille: u32) -> Self {
        Self {
            lost: per_mille,
            lost_answer: per_mille,
            late: per_mille,
            late_us: 300_000_000,
            double: per_mille,
            throttled: per_mille,
            flip_read: per_mille,
            flip_sent: per_mille,
            lost_upload: per_mille,
            stale: per_mille,
            stale_us: 30_000_000,
            latency_us: 200_000,
            timeout_us: 10_000_000,
        }
    }
}
