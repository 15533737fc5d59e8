//! A model of the threads that work on a blob file.

mod interleavings;
