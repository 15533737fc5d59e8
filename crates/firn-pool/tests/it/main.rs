//! The pool on real memcached nodes.
#![allow(clippy::disallowed_methods)] // Real nodes, real time.

mod certificates;
mod memcached;
mod nodes;
mod tls;
