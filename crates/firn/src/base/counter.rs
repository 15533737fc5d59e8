//! How far a counter has got.

/// A counter's value. It only grows, but that it may be set: then a new generation begins, in which it grows again.
///
/// The order is that of the generations, and within one that of the values. So whatever is known of a counter, from log
/// and manifest, of any age and in any order, the largest is what holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CounterValue {
    /// How often it was set.
    pub generation: u64,
    /// The largest value used since.
    pub value: u64,
}

impl From<u64> for CounterValue {
    /// Of a counter that was never set.
    fn from(value: u64) -> Self {
        Self {
            generation: 0,
            value,
        }
    }
}
