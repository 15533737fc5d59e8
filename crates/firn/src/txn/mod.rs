//! Transactions: snapshots, write sets, locks, deadlocks.
