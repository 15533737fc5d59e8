//! What the judge has found.

use crate::history::{History, Statement, TxnOutcome};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Something that cannot have happened in an engine that keeps its promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Adya's name or ours: G0, G1a, G1b, G1c, G-single, G2-item, phantom, lost update, …
    pub name: String,
    /// The transactions that show it.
    pub txns: Vec<u64>,
    /// How they show it.
    pub story: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.story)
    }
}

/// What a history shows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Verdict {
    /// What must not be.
    pub findings: Vec<Finding>,
    /// Cycles of transactions that the isolation level permits.
    pub permitted: BTreeMap<String, u64>,
    /// Phantoms that gap locks would have prevented, where there are none.
    pub gaps: Vec<Finding>,
    /// Transactions by outcome.
    pub txns: BTreeMap<String, u64>,
    /// Statements by kind.
    pub statements: BTreeMap<String, u64>,
    /// Instants compared.
    pub instants: u64,
}

/// More findings of one history are not told.
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
