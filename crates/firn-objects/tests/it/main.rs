//! The crate against real servers.
#![allow(clippy::disallowed_methods)] // Tests own their files and their time.

mod dependencies;
mod s3;
mod tls;
mod versitygw;
