//! Packed row format, schema versions, decode plans.
