//! A history: the requests of clients and the answers to them, as each client recorded them. In a
//! file, it is one JSON object a line: first the [`Setup`], then each [`Txn`].

use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

/// A number, unique in the history, that a statement appends to each row that it writes. A row
/// keeps its elements in the order in which they were appended.
pub type Element = u64;

/// Facts about the engine and the tables that the judge needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Setup {
    /// Description of the engine, for people.
    pub engine: String,
    /// Whether locking scans at REPEATABLE READ keep other transactions from inserting into their
    /// range.
    pub gap_locks: bool,
    /// Whether a failed sync hides commits that were visible and not durable, and a crash may
    /// bring them back, because the failed write has reached the device after all.
    #[serde(default)]
    pub hides_unsynced: bool,
    /// Lists in which transactions only move amounts from row to row: in each snapshot of such a
    /// list, the amounts sum up to zero.
    #[serde(default)]
    pub balanced: Vec<u64>,
    /// Lists in which list and position are a unique secondary key. A read of a single position
    /// returns one row, because the server stops at the first match of a unique key. Two rows can
    /// have the position all the same: an old version in the snapshot, and a row that the
    /// transaction has written itself.
    #[serde(default)]
    pub unique: Vec<u64>,
    /// Lists in optimistic tables. Below SERIALIZABLE, all statements read these lists as plain
    /// SELECTs do and lock nothing. The commit of a transaction fails if another transaction has
    /// changed a row that the first one has locked, changed or deleted.
    #[serde(default)]
    pub optimistic: Vec<u64>,
}

/// All transactions of a run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Facts about the engine and the tables.
    pub setup: Setup,
    /// The transactions, in any order.
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
    /// SERIALIZABLE. A plain SELECT of a transaction is recorded as a locking one.
    #[serde(rename = "SR")]
    Serializable,
}

/// The outcome of a transaction, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TxnOutcome {
    /// The commit was acknowledged.
    Ok,
    /// The transaction was rolled back, or its commit was never requested.
    Failed,
    /// The commit was requested, and its answer is missing or leaves the outcome open.
    Unknown,
}

/// The times of a request and its answer, by the one clock of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpan {
    /// A time before the request.
    pub begin: u64,
    /// A time after the answer; `None` if no answer came.
    pub end: Option<u64>,
}

/// A transaction of one client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Txn {
    /// Unique in the history.
    pub id: u64,
    /// Number of the life of the database in which the transaction ran; each crash begins the next
    /// life.
    #[serde(default)]
    pub life: u32,
    /// Isolation level of the transaction.
    pub level: IsolationLevel,
    /// Outcome of the transaction.
    pub outcome: TxnOutcome,
    /// The times of the commit or rollback; with autocommit, those of the statement. `None` if
    /// neither was requested.
    pub end: Option<TimeSpan>,
    /// The transaction's statements in order.
    pub ops: Vec<Op>,
}

/// One statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Op {
    /// The times of the statement's request and answer.
    #[serde(flatten)]
    pub span: TimeSpan,
    /// Outcome of the statement.
    #[serde(default)]
    pub status: StatementStatus,
    /// The request, with the answer.
    #[serde(flatten)]
    pub statement: Statement,
}

/// The outcome of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementStatus {
    /// Success.
    #[default]
    Done,
    /// Success, but a rollback to a savepoint took its writes back.
    Undone,
    /// The statement got an error or no answer: it returned no rows, and none of its writes stay.
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
        /// The rows that it requests.
        scan: Scan,
        /// The rows that it returned.
        rows: Vec<Row>,
    },
    /// SELECT … FOR UPDATE or LOCK IN SHARE MODE.
    Lock {
        /// The rows that it requests.
        scan: Scan,
        /// The rows that it returned.
        rows: Vec<Row>,
        /// Whether the statement may leave rows out (SKIP LOCKED).
        #[serde(default)]
        partial: bool,
    },
    /// UPDATE: appends the element to each row of the scan.
    Append {
        /// The rows that it changes.
        scan: Scan,
        /// The element that it appends.
        element: Element,
        /// The number that it adds to the amount of each row.
        #[serde(default)]
        add: i64,
        /// List and position to which the update moves the row.
        #[serde(default)]
        to: Option<(u64, i64)>,
        /// Whether the update gives the row another primary key and leaves list and position as
        /// they are.
        #[serde(default)]
        renames: bool,
        /// Number of rows that it changed, as the engine reported it.
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
        /// The rows that it deletes.
        scan: Scan,
        /// The deleted rows, as they were.
        rows: Vec<Row>,
    },
}

/// A row as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The row's identity, never used for another row.
    pub id: u64,
    /// The list that the row is in.
    pub list: u64,
    /// The row's position in the list.
    pub pos: i64,
    /// The value of the row's column for amounts. Each write that appends an element to the row
    /// adds a number to it, so it is the sum of these numbers.
    #[serde(default)]
    pub amount: i64,
    /// The elements that writes have appended to the row, oldest first.
    pub log: Vec<Element>,
}

/// The rows that a statement requests.
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
        /// The order of positions in which the statement visits the range. 1: ascending; -1:
        /// descending; 0: unknown.
        order: i8,
        /// Whether a further condition selects the rows with even ids: the statement reads the
        /// others too, but neither returns nor changes them.
        #[serde(default)]
        even: bool,
    },
    /// The row with this id, at any list and position.
    Point {
        /// Id of the row.
        id: u64,
    },
}

impl Scan {
    /// Whether the scan requests the row `id` if the row is at this list and position.
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
    /// Those of reading `input`; of the kind `InvalidData`, or `UnexpectedEof`, if a line is no
    /// JSON object of the expected form.
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

    /// Writes a history in the form that [`Self::read`] reads.
    ///
    /// # Errors
    /// Those of writing to `output`.
    pub fn write(&self, mut output: impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut output, &self.setup)?;
        for txn in &self.txns {
            output.write_all(b"\n")?;
            serde_json::to_writer(&mut output, txn)?;
        }
        output.write_all(b"\n")
    }
}
