//! Under `loom`, interleavings of the insert protocol; otherwise the list against a model.

#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod list;
