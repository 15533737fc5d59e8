//! Judges histories of concurrent transactions: a history goes in, findings come out.
//!
//! The method is Elle's (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations"): every row carries the list of the elements that transactions have
//! appended to it, so each read of a row tells all its versions and their order, and from those
//! orders follow the dependencies between transactions. A cycle of them cannot have happened.
//!
//! Elle's nodes are transactions. Here they are *instants*, because the isolation levels of the
//! server say something about statements and even about rows: a plain SELECT reads at one instant
//! (READ COMMITTED: its own; REPEATABLE READ: one for the whole transaction), a locking scan passes
//! its range row by row, each at an instant of its own, in the order of the index, and a
//! transaction takes effect at the instant it ends. Every observation orders two instants:
//!
//! | observed by T | so |
//! |---|---|
//! | a version that W wrote | W ended before T read it |
//! | a snapshot without W's version | T read before W ended |
//! | a row under a lock, which W changed later | T ended before W ended |
//! | a range without the row that W put there | T passed the place before W ended |
//! | an answer before somebody else asked | the one before the other |
//!
//! An order that runs in a circle is a finding, whatever the level; the level only says which reads
//! share an instant. Cycles of whole transactions that do not run in a circle of instants (write
//! skew, a lost update through a plain SELECT) are what the level permits: they are listed. So are
//! cycles that gap locks would have prevented, if the engine has none.
//!
//! ```text
//! T2 locks (7,100) and inserts (7,101); T1: UPDATE … WHERE list = 7 waits; T2 commits.
//!   T2 ends → T1 reads (7,100), with T2's element → T1 passes (7,101), and misses it → T2 ends
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

/// Judges a history.
pub fn check(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let chains = version_chains::Chains::of(history, &mut verdict);
    dependencies::judge(history, &chains, &mut verdict);
    verdict.count(history);
    verdict
}

#[cfg(test)]
mod tests;
