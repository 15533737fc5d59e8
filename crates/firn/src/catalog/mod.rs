//! Tables and indexes as entries of the store itself.

pub mod schema;
