//! Interleavings of threads.

mod interleavings;
