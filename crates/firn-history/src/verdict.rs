//! The result of the judge: findings and counts.

use crate::history::{History, Statement, TxnOutcome};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// An observation that is impossible in an engine that keeps its promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Adya's name (G0, G1a, G1b, G1c, G-single, G2-item) or one of this crate's (phantom, lost
    /// update, torn row and others).
    pub name: String,
    /// Ids of the transactions that show it.
    pub txns: Vec<u64>,
    /// The observation in words.
    pub story: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.story)
    }
}

/// The result of judging a history.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verdict {
    /// Violations of the isolation level, at most 50.
    pub findings: Vec<Finding>,
    /// Number of cycles of transactions that the isolation level permits, by name.
    pub permitted: BTreeMap<String, u64>,
    /// Phantoms that gap locks would have prevented, of an engine without gap locks.
    pub gaps: Vec<Finding>,
    /// Number of transactions by outcome.
    pub txns: BTreeMap<String, u64>,
    /// Number of statements by kind.
    pub statements: BTreeMap<String, u64>,
    /// Number of instants that the judge ordered.
    pub instants: u64,
}

/// Largest number of findings in a verdict. Further ones are dropped.
const FINDINGS_MAX: usize = 50;

impl Verdict {
    pub(crate) fn find(&mut self, name: impl Into<String>, txns: &[u64], story: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding {
                name: name.into(),
                txns: txns.to_vec(),
                story,
            });
        }
    }

    pub(crate) fn count(&mut self, history: &History) {
        for txn in &history.txns {
            let outcome = match txn.outcome {
                TxnOutcome::Ok => "ok",
                TxnOutcome::Failed => "failed",
                TxnOutcome::Unknown => "unknown",
            };
            *self.txns.entry(outcome.into()).or_default() += 1;
            for op in &txn.ops {
                let kind = match op.statement {
                    Statement::Snapshot => "snapshot",
                    Statement::Read { .. } => "read",
                    Statement::Lock { .. } => "lock",
                    Statement::Append { .. } => "append",
                    Statement::Insert { .. } => "insert",
                    Statement::Delete { .. } => "delete",
                };
                *self.statements.entry(kind.into()).or_default() += 1;
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} findings; transactions {:?}; statements {:?}; {} instants",
            self.findings.len(),
            self.txns,
            self.statements,
            self.instants
        )?;
        writeln!(f, "permitted by the level: {:?}", self.permitted)?;
        writeln!(f, "for want of gap locks: {}", self.gaps.len())?;
        for finding in &self.findings {
            writeln!(f, "FOUND {finding}")?;
        }
        Ok(())
    }
}
