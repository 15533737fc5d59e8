//! Composition root: open, recovery, background work, metrics.
