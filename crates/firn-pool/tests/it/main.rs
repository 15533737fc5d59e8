//! The pool on real memcached nodes.
#![allow(clippy::disallowed_methods)] // Real nodes, real time.

mod memcached;
mod nodes;
