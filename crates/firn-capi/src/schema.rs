//! Table definitions as they cross the C ABI, and their conversion.
