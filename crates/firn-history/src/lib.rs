//! Judges histories of concurrent transactions: finds observations that the isolation level
//! forbids.
//!
//! The method is Elle's (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations"): every row carries the list of the elements that statements have
//! appended to it. So a read of a row shows all versions of the row up to then and their order, and
//! from these orders follow dependencies between transactions. A cycle of dependencies is
//! impossible in an engine that keeps its promises.
//!
//! Elle's nodes are transactions. Here they are *instants*, because the isolation levels of the
//! server speak of statements and rows: a plain SELECT reads at one instant (READ COMMITTED: its
//! own; REPEATABLE READ: one for the whole transaction); a locking scan passes its range row by
//! row, each at an instant of its own, in index order; a transaction takes effect at the instant
//! it ends. Every observation orders two instants:
//!
//! | observed by T | order |
//! |---|---|
//! | a version that W wrote | end of W → T's read of the row |
//! | a snapshot without W's version | T's snapshot → end of W |
//! | a row under a lock, which W changed later | end of T → end of W |
//! | a range without a row that W put there | T passes the position → end of W |
//! | an answer before another session's request | the answered instant → the requested one |
//!
//! In optimistic tables every statement reads at the instant of plain SELECTs. A row that the
//! statement locks or changes still counts as a row under a lock, because the commit validates it.
//! No range counts as locked.
//!
//! A cycle of instants is a finding at every level; the level only decides which reads share an
//! instant. A cycle of transactions that is no cycle of instants (write skew, a lost update through
//! a plain SELECT) is a finding if all its transactions are SERIALIZABLE. Otherwise an isolation
//! level permits it, and it is only counted. For an engine without gap locks, cycles that gap locks
//! would have prevented are listed apart and are no findings.
//!
//! ```text
//! T2 locks (7,100) and inserts (7,101); T1: UPDATE … WHERE list = 7 waits; T2 commits.
//!   end of T2 → T1 reads (7,100) with T2's element → T1 passes (7,101) and misses it → end of T2
//! ```

mod dependencies;
mod graph;
pub mod history;
pub mod verdict;
mod version_chains;

pub use history::{
    History, IsolationLevel, Op, Row, Scan, Setup, Statement, StatementStatus, TimeSpan, Txn,
    TxnOutcome,
};
pub use verdict::{Finding, Verdict};

/// Judges a history: first each row and statement by itself, then the order of instants.
pub fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let chains = version_chains::Chains::of(history, &mut verdict);
    dependencies::judge(history, &chains, &mut verdict);
    verdict.count(history);
    verdict
}

#[cfg(test)]
mod tests;
