//! What clients did and were told, as they noted it; one JSON object a line in a file.

use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

/// A number that one statement, and no other, appends to the rows it writes.
pub type Element = u64;

/// What the judge must know of the engine and the tables.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Setup {
    /// For people.
    pub engine: String,
    /// Locking scans at REPEATABLE READ keep others from inserting into their range.
    pub gap_locks: bool,
    /// Lists between which transactions move amounts: in a snapshot of one list the sum is zero.
    #[serde(default)]
    pub balanced: Vec<u64>,
}

/// All transactions of a run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The first line.
    pub setup: Setup,
    /// The others, in any order.
    pub txns: Vec<Txn>,
}

/// Isolation levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IsolationLevel {
    /// READ COMMITTED.
    #[serde(rename = "RC")]
    ReadCommitted,
    /// REPEATABLE READ.
    #[serde(rename = "RR")]
    RepeatableRead,
}

/// How a transaction ended, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TxnOutcome {
    /// The commit was acknowledged.
    Ok,
    /// It was rolled back, or the commit was never asked for.
    Failed,
    /// The commit was asked for, and the answer did not come or tells nothing.
    Unknown,
}

/// When something was asked for and answered, by the one clock of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpan {
    /// Before the call.
    pub begin: u64,
    /// After it; none if no answer came.
    pub end: Option<u64>,
}

/// A transaction of one client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Txn {
    /// Unique in the history.
    pub id: u64,
    /// Which life of the database it ran in; a crash begins the next one.
    #[serde(default)]
    pub life: u32,
    /// Its isolation level.
    pub level: IsolationLevel,
    /// How it ended.
    pub outcome: TxnOutcome,
    /// The commit, or the rollback of a failed one. Of a statement that is a transaction by itself,
    /// the statement. None if neither was asked for.
    pub end: Option<TimeSpan>,
    /// Its statements in order.
    pub ops: Vec<Op>,
}

/// One statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Op {
    /// When.
    #[serde(flatten)]
    pub span: TimeSpan,
    /// How it ended.
    #[serde(default)]
    pub status: StatementStatus,
    /// What it was.
    #[serde(flatten)]
    pub statement: Statement,
}

/// How a statement ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementStatus {
    /// Well.
    #[default]
    Done,
    /// Well, but a rollback to a savepoint took its writes back.
    Undone,
    /// With an error, or without an answer: it told nothing and wrote nothing that stays.
    Failed,
}

/// Statements.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Statement {
    /// START TRANSACTION WITH CONSISTENT SNAPSHOT.
    Snapshot,
    /// A plain SELECT.
    Read {
        /// Which rows it asks for.
        scan: Scan,
        /// What it got.
        rows: Vec<Row>,
    },
    /// SELECT … FOR UPDATE or LOCK IN SHARE MODE.
    Lock {
        /// Which rows it asks for.
        scan: Scan,
        /// What it got.
        rows: Vec<Row>,
        /// Rows may be left out (SKIP LOCKED).
        #[serde(default)]
        partial: bool,
    },
    /// UPDATE: appends the element to each row of the scan.
    Append {
        /// Which rows it changes.
        scan: Scan,
        /// What it appends.
        element: Element,
        /// What it adds to the amount of each row.
        #[serde(default)]
        add: i64,
        /// Where it moves the row to: list and position.
        #[serde(default)]
        to: Option<(u64, i64)>,
        /// It gives the row another primary key, which an index of lists is not about.
        #[serde(default)]
        renames: bool,
        /// How many rows it has changed, as the engine tells.
        #[serde(default)]
        count: Option<u64>,
    },
    /// INSERT of a row with one element.
    Insert {
        /// The new row.
        row: Row,
    },
    /// DELETE of each row of the scan.
    Delete {
        /// Which rows it deletes.
        scan: Scan,
        /// What they were.
        rows: Vec<Row>,
    },
}

/// A row as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Which row; never used again for another one.
    pub id: u64,
    /// The list that it is in.
    pub list: u64,
    /// Where in the list.
    pub pos: i64,
    /// Its amount: the sum of what all its elements add.
    #[serde(default)]
    pub amount: i64,
    /// The elements appended to it, oldest first.
    pub log: Vec<Element>,
}

/// Rows that a statement asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scan {
    /// A range of a list through an index on list and position.
    Range {
        /// The list.
        list: u64,
        /// The first position.
        from: i64,
        /// The last position.
        to: i64,
        /// 1: in ascending order, -1: in descending order, 0: in an order that is not known.
        order: i8,
        /// Only rows whose id is even: the statement reads the others as well, and leaves them.
        #[serde(default)]
        even: bool,
    },
    /// The row with this id, wherever it is.
    Point {
        /// Its id.
        id: u64,
    },
}

impl Scan {
    /// Whether a row at this place is asked for.
    pub fn covers(&self, id: u64, (at_list, pos): (u64, i64)) -> bool {
        match *self {
            Self::Range {
                list,
                from,
                to,
                even,
                ..
            } => list == at_list && (from..=to).contains(&pos) && !(even && id % 2 == 1),
            Self::Point { id: wanted } => id == wanted,
        }
    }
}

impl History {
    /// Reads a history.
    ///
    /// # Errors
    /// Those of reading, and lines that are not what they should be.
    pub fn read(input: impl BufRead) -> std::io::Result<Self> {
        let mut lines = input.lines();
        let mut history = Self::default();
        if let Some(first) = lines.next() {
            history.setup = serde_json::from_str(&first?)?;
        }
        for line in lines {
            history.txns.push(serde_json::from_str(&line?)?);
        }
        Ok(history)
    }

    /// Writes a history as [`Self::read`] reads it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(&self, mut output: impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut output, &self.setup)?;
        for txn in &self.txns {
            output.write_all(b"\n")?;
            serde_json::to_writer(&mut output, txn)?;
        }
        output.write_all(b"\n")
    }
}
