//! Values of persisted counters, such as auto-increment maxima.

/// The value of a counter. A counter only grows, unless it is set: setting begins a new generation,
/// in which the counter grows again.
///
/// Counter values compare by generation first, then by value. So recovery may read the counter
/// values in log and manifest in any order: the largest one is the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CounterValue {
    /// Number of times the counter was set.
    pub generation: u64,
    /// The largest value used in this generation.
    pub value: u64,
}

/// How the counters of a database have changed since the changes were last taken for a manifest
/// edit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CounterChanges {
    /// The counters that may have changed, by number, with their values.
    pub values: Vec<(u64, CounterValue)>,
    /// The numbers of the counters that were removed because their table was dropped.
    pub dropped: Vec<u64>,
}

impl From<u64> for CounterValue {
    /// The value of a counter that was never set.
    fn from(value: u64) -> Self {
        Self {
            generation: 0,
            value,
        }
    }
}
