//! Transactions: snapshots, private write sets, row and gap locks, deadlocks, and prepared
//! transactions.

pub mod active_inserts;
mod commit_by_xid;
mod commit_wait;
mod deadlock;
mod found_parents;
mod gate_wait;
mod hidden_rows;
mod isolation;
pub mod lock_table;
mod number_hasher;
pub mod prepared_transactions;
mod referenced_tables;
mod row_count_deltas;
mod savepoint_locks;
pub mod snapshots;
mod statement_tables;
pub mod transaction;
pub mod transaction_context;
pub mod transaction_list;
mod validation_set;
pub mod write_set;

pub use active_inserts::{ActiveInserts, Nearest};
pub use isolation::Isolation;
pub use lock_table::{
    Deadlock, DeadlockMember, GapGrant, Granted, LockInfo, LockMemory, LockMode, LockOwner,
    LockStats, LockTable, WaitInfo, WaitObserver, WaitPolicy, WaitReports,
};
pub use prepared_transactions::{PreparedTransaction, PreparedTransactions};
pub use referenced_tables::ReferencedTables;
pub use snapshots::{Snapshot, SnapshotList};
pub use statement_tables::StatementTables;
pub use transaction::Transaction;
pub use transaction_context::TransactionContext;
pub use transaction_list::{TransactionInfo, TransactionList, TransactionPhase};
pub use write_set::{Savepoint, SharedWriteSet, WriteSet, WriteSetIter};
