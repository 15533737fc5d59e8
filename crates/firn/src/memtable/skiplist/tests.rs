//! Tests of the skiplist: under `loom` all interleavings of the insert protocol, otherwise a
//! comparison with a model.

#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod list;
