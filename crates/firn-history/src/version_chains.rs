//! The version chain of each row, inferred from all reads of the row.
//!
//! A read shows the elements of all statements that wrote the row, oldest first. Without the
//! elements of transactions that did not commit, the sequence of elements that a read shows must be
//! a prefix of the longest such sequence. So the longest one gives all versions, their order and
//! their writers:
//!
//! ```text
//! reads of row 100:  [1]   [1, 10]   [1, 10, 20]
//! chain of row 100:  version 0: absent; 1: [1]; 2: [1, 10]; 3: [1, 10, 20]; 4: deleted, if so
//! ```
//!
//! The steps ([`Chains::of`]): find the statement of each element, decide the fate of each
//! transaction, order the versions, add deletions. Then each row and statement is checked by itself
//! (`checks`), and each transaction against its own writes (`own_writes`).

use crate::history::{
    Element, History, Op, Row, Scan, Statement, StatementStatus, Txn, TxnOutcome,
};
use crate::verdict::Verdict;
use std::collections::{BTreeMap, HashMap};

mod checks;
mod own_writes;

/// Position of a transaction in the history.
pub(crate) type TxnIndex = usize;

/// The outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The transaction committed: its writes are in every later state.
    Committed,
    /// No other transaction may ever see the transaction's writes.
    Aborted,
    /// The transaction's commit became visible, but a crash took it back before it was
    /// acknowledged.
    Lost,
}

/// The statement that appended an element.
#[derive(Debug, Clone, Copy)]
struct Origin {
    txn: TxnIndex,
    op: usize,
    add: i64,
    /// List and position that the statement gives to the row; `None` if it does not move the row.
    place: Option<(u64, i64)>,
    renames: bool,
    /// The statement failed, or a rollback to a savepoint took it back.
    undone: bool,
}

/// One version of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    pub(crate) element: Element,
    pub(crate) writer: TxnIndex,
    pub(crate) place: (u64, i64),
}

/// The versions of a row. Version 0 is its absence, version n the one with n elements; the version
/// after the last one is its absence after a deletion.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) versions: Vec<Version>,
    pub(crate) deleted: Option<TxnIndex>,
    /// Deletions and moves of the row by transactions that a crash may have taken back, each with
    /// the life of the database and the time of its request. A scan in that life may miss the row
    /// after that time without being wrong: the deletion was visible until the crash.
    pub(crate) lost_exits: Vec<(u32, u64)>,
}

impl Chain {
    pub(crate) fn len(&self) -> usize {
        self.versions.len()
    }

    /// The transaction that made version `i`: `None` for version 0, the deleter for the version
    /// after the last one.
    pub(crate) fn writer(&self, i: usize) -> Option<TxnIndex> {
        match i {
            0 => None,
            i if i <= self.len() => Some(self.versions[i - 1].writer),
            _ => self.deleted,
        }
    }

    /// List and position of version `i`; `None` if the row is absent in it.
    pub(crate) fn place(&self, i: usize) -> Option<(u64, i64)> {
        (1..=self.len())
            .contains(&i)
            .then(|| self.versions[i - 1].place)
    }
}

/// The version chains of all rows of a history.
pub(crate) struct Chains<'a> {
    history: &'a History,
    origins: HashMap<Element, Origin>,
    pub(crate) fates: Vec<Fate>,
    pub(crate) rows: BTreeMap<u64, Chain>,
    /// The rows that were ever at a list and position.
    places: BTreeMap<(u64, i64), Vec<u64>>,
    /// By element: the rows whose chains contain it, with the version that it makes.
    carriers: HashMap<Element, Vec<(u64, usize)>>,
    /// By transaction and row: the first statement that changed the row, or tried to.
    touched: HashMap<(TxnIndex, u64), usize>,
}

/// The rows that a statement returned.
pub(crate) fn rows_read(op: &Op) -> &[Row] {
    match &op.statement {
        _ if op.status == StatementStatus::Failed => &[],
        Statement::Read { rows, .. }
        | Statement::Lock { rows, .. }
        | Statement::Delete { rows, .. } => rows,
        _ => &[],
    }
}

/// Whether the transaction has a successful write.
fn writes(txn: &Txn) -> bool {
    let writes = |op: &Op| {
        op.status == StatementStatus::Done
            && matches!(
                op.statement,
                Statement::Append { .. } | Statement::Insert { .. } | Statement::Delete { .. }
            )
    };
    txn.ops.iter().any(writes)
}

impl<'a> Chains<'a> {
    pub(crate) fn of(history: &'a History, verdict: &mut Verdict) -> Self {
        let mut chains = Self {
            history,
            origins: HashMap::new(),
            fates: Vec::new(),
            rows: BTreeMap::new(),
            places: BTreeMap::new(),
            carriers: HashMap::new(),
            touched: HashMap::new(),
        };
        chains.find_origins(verdict);
        chains.decide_fates();
        chains.order_versions(verdict);
        chains.add_deletes(verdict);
        chains.add_lost_exits();
        chains.index();
        chains.check_counts(verdict);
        chains.check_reads(verdict);
        chains.check_own(verdict);
        chains
    }

    fn txn(&self, t: TxnIndex) -> &'a Txn {
        &self.history.txns[t]
    }

    fn id(&self, t: TxnIndex) -> u64 {
        self.txn(t).id
    }

    fn ops(&self) -> impl Iterator<Item = (TxnIndex, usize, &'a Op)> + use<'a> {
        let txns = self.history.txns.iter().enumerate();
        txns.flat_map(|(t, txn)| txn.ops.iter().enumerate().map(move |(o, op)| (t, o, op)))
    }

    fn find_origins(&mut self, verdict: &mut Verdict) {
        for (txn, op, noted) in self.ops() {
            let (element, add, place, renames) = match &noted.statement {
                Statement::Append {
                    element,
                    add,
                    to,
                    renames,
                    ..
                } => (*element, *add, *to, *renames),
                Statement::Insert { row } => {
                    self.touch(txn, row.id, op);
                    (row.log[0], row.amount, Some((row.list, row.pos)), false)
                }
                _ => continue,
            };
            let undone = noted.status != StatementStatus::Done;
            let origin = Origin {
                txn,
                op,
                add,
                place,
                renames,
                undone,
            };
            if let Some(other) = self.origins.insert(element, origin) {
                let txns = [self.id(other.txn), self.id(txn)];
                verdict.find(
                    "bad history",
                    &txns,
                    format!("element {element} is used twice"),
                );
            }
        }
    }

    fn decide_fates(&mut self) {
        let txns = &self.history.txns;
        let last_life = txns.iter().map(|txn| txn.life).max().unwrap_or(0);
        // By transaction: the number of the last life in which another transaction read one of its
        // elements.
        let mut seen = vec![None; txns.len()];
        for (reader, _, op) in self.ops() {
            for element in rows_read(op).iter().flat_map(|row| &row.log) {
                if let Some(origin) = self.origins.get(element)
                    && origin.txn != reader
                {
                    seen[origin.txn] = seen[origin.txn].max(Some(txns[reader].life));
                }
            }
        }
        let fate = |(t, txn): (usize, &Txn)| match (txn.outcome, seen[t]) {
            (TxnOutcome::Ok, _) => Fate::Committed,
            (TxnOutcome::Failed, _) | (TxnOutcome::Unknown, None) => Fate::Aborted,
            (TxnOutcome::Unknown, Some(life)) if life > txn.life || txn.life == last_life => {
                Fate::Committed
            }
            (TxnOutcome::Unknown, Some(_)) => Fate::Lost,
        };
        self.fates = txns.iter().enumerate().map(fate).collect();
        // A `Lost` transaction has committed after all if a committed transaction wrote on top of
        // its version or deleted it. Repeat the search, since each transaction found may prove that
        // others have committed.
        loop {
            let mut saved = Vec::new();
            for (reader, _, op) in self.ops() {
                let deletes = matches!(op.statement, Statement::Delete { .. })
                    && op.status == StatementStatus::Done
                    && self.fates[reader] == Fate::Committed;
                for row in rows_read(op) {
                    let origins: Vec<_> = row.log.iter().map(|e| self.origins.get(e)).collect();
                    let stays = |origin: &Option<&Origin>| {
                        origin.is_some_and(|o| self.fates[o.txn] == Fate::Committed && !o.undone)
                    };
                    let below = match deletes {
                        true => origins.len(),
                        false => origins.iter().rposition(stays).unwrap_or(0),
                    };
                    let lost = origins[..below].iter().flatten();
                    saved.extend(lost.map(|o| o.txn).filter(|&t| self.fates[t] == Fate::Lost));
                }
            }
            if saved.is_empty() {
                break;
            }
            for t in saved {
                self.fates[t] = Fate::Committed;
            }
        }
    }

    /// Each write appends an element to a list in the row. Returns the elements of that list whose
    /// transactions have committed, without those of failed statements and of statements that a
    /// rollback to a savepoint took back.
    pub(crate) fn committed_part(&self, row: &Row) -> Vec<Element> {
        let stays = |element: &&Element| {
            let origin = self.origins.get(element);
            origin.is_some_and(|o| !o.undone && self.fates[o.txn] == Fate::Committed)
        };
        row.log.iter().filter(stays).copied().collect()
    }

    /// Whether the transaction changed the row, or tried to, before statement `o`.
    pub(crate) fn has_touched(&self, t: TxnIndex, row: u64, o: usize) -> bool {
        self.touched.get(&(t, row)).is_some_and(|&first| first < o)
    }

    /// Whether `row`, as a plain read of transaction `t` returned it, is the old version of a row
    /// whose primary key has changed. The server may then return the row twice, for example:
    ///
    /// 1. `t` takes its snapshot, in which the row has the primary key 1.
    /// 2. Another transaction changes the key to 2 and commits.
    /// 3. `t` updates the row, which it finds under the key 2.
    ///
    /// A plain read of `t` now returns its own version under 2 and the snapshot's version under 1,
    /// since no write of `t` replaces the entry of key 1.
    fn is_under_old_key(&self, t: TxnIndex, o: usize, row: &Row) -> bool {
        let is_own = |element: &Element| self.origins.get(element).is_some_and(|at| at.txn == t);
        matches!(self.txn(t).ops[o].statement, Statement::Read { .. })
            && self.has_touched(t, row.id, o)
            && !row.log.iter().any(is_own)
            && self.is_renamed_by_other(t, row.id)
    }

    /// Whether another transaction has given the row a new primary key.
    fn is_renamed_by_other(&self, t: TxnIndex, row: u64) -> bool {
        let renamed = |element: &Element| self.origins.get(element).is_some_and(|at| at.renames);
        self.rows.get(&row).is_some_and(|chain| {
            let mut versions = chain.versions.iter();
            versions.any(|version| version.writer != t && renamed(&version.element))
        })
    }

    fn touch(&mut self, t: TxnIndex, row: u64, o: usize) {
        let first = self.touched.entry((t, row)).or_insert(o);
        *first = o.min(*first);
    }

    /// Returns the number of the version that was read; `None` if the row's elements fit no
    /// version.
    pub(crate) fn version_of(&self, row: &Row) -> Option<usize> {
        let part = self.committed_part(row);
        let chain = self.rows.get(&row.id)?;
        let fits = part.len() <= chain.len()
            && part
                .iter()
                .zip(&chain.versions)
                .all(|(e, v)| *e == v.element);
        fits.then_some(part.len())
    }

    /// The rows whose chains contain this element, each with the version that it makes.
    pub(crate) fn carriers(&self, element: Element) -> &[(u64, usize)] {
        self.carriers.get(&element).map_or(&[], Vec::as_slice)
    }

    /// The rows of which some version is in the scan.
    pub(crate) fn rows_in(&self, scan: &Scan) -> Vec<u64> {
        match *scan {
            Scan::Point { id } => self
                .rows
                .contains_key(&id)
                .then_some(id)
                .into_iter()
                .collect(),
            Scan::Range { from, to, .. } if from > to => Vec::new(),
            Scan::Range { list, from, to, .. } => {
                let places = self.places.range((list, from)..=(list, to));
                let rows =
                    places.flat_map(|(&place, rows)| rows.iter().map(move |&row| (row, place)));
                let asked = rows.filter(|&(row, place)| scan.covers(row, place));
                let mut rows: Vec<u64> = asked.map(|(row, _)| row).collect();
                rows.sort_unstable();
                rows.dedup();
                rows
            }
        }
    }

    /// Makes each row's chain from its longest log; all other logs must be prefixes of it.
    fn order_versions(&mut self, verdict: &mut Verdict) {
        let mut logs: BTreeMap<u64, Vec<(TxnIndex, Vec<Element>)>> = BTreeMap::new();
        for (t, _, op) in self.ops() {
            if let Statement::Insert { row } = &op.statement
                && op.status == StatementStatus::Done
                && self.fates[t] == Fate::Committed
            {
                logs.entry(row.id).or_default().push((t, row.log.clone()));
            }
            for row in rows_read(op) {
                self.check_elements(t, row, verdict);
                let part = self.committed_part(row);
                if !part.is_empty() {
                    logs.entry(row.id).or_default().push((t, part));
                }
            }
        }
        for (row, logs) in logs {
            let longest = logs
                .iter()
                .max_by_key(|(_, log)| log.len())
                .expect("one at least");
            if let Some((t, other)) = logs.iter().find(|(_, log)| !longest.1.starts_with(log)) {
                let txns = [self.id(longest.0), self.id(*t)];
                let story = format!(
                    "T{} saw row {row} as {:?}, T{} as {other:?}: one of them has lost what the other shows",
                    txns[0], longest.1, txns[1]
                );
                verdict.find("incompatible versions", &txns, story);
            }
            let mut chain = Chain::default();
            let mut place = (0, 0);
            for element in &longest.1 {
                let origin = self.origins[element];
                place = origin.place.unwrap_or(place);
                chain.versions.push(Version {
                    element: *element,
                    writer: origin.txn,
                    place,
                });
            }
            self.rows.insert(row, chain);
        }
    }

    /// Fills [`Chain::lost_exits`]: the deletions and moves by transactions whose commit had no
    /// answer. Such a commit may have been visible until a crash took it back.
    fn add_lost_exits(&mut self) {
        for (t, _, op) in self.ops() {
            let txn = self.txn(t);
            if self.fates[t] == Fate::Committed || txn.outcome != TxnOutcome::Unknown {
                continue;
            }
            let gone: Vec<u64> = match &op.statement {
                Statement::Delete { rows, .. } => rows.iter().map(|row| row.id).collect(),
                Statement::Append {
                    scan: Scan::Point { id },
                    to: Some(_),
                    ..
                } => vec![*id],
                _ => continue,
            };
            for row in gone {
                if let Some(chain) = self.rows.get_mut(&row) {
                    chain.lost_exits.push((txn.life, op.span.begin));
                }
            }
        }
    }

    /// Ends the chains of deleted rows, and reports rows that were deleted twice or changed after
    /// their deletion.
    fn add_deletes(&mut self, verdict: &mut Verdict) {
        for (t, o, op) in self.ops() {
            let Statement::Delete { rows, .. } = &op.statement else {
                continue;
            };
            if op.status == StatementStatus::Failed {
                continue;
            }
            for row in rows {
                self.touch(t, row.id, o);
            }
            for row in rows {
                let seen = self.committed_part(row).len();
                let id = self.id(t);
                let Some(chain) = self.rows.get_mut(&row.id) else {
                    continue;
                };
                match self.fates[t] {
                    Fate::Committed if op.status == StatementStatus::Done => {
                        let before = chain.deleted.replace(t);
                        let length = chain.len();
                        if let Some(other) = before {
                            let both = [self.id(other), id];
                            let story = format!("T{} and T{id} deleted row {}", both[0], row.id);
                            verdict.find("deleted twice", &both, story);
                        }
                        if length > seen {
                            let story = format!(
                                "T{id} deleted row {} with {:?}, and there is more of it",
                                row.id, row.log
                            );
                            verdict.find("lost delete", &[id], story);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Fills `places` and `carriers` from the chains, and `touched` from the chains, the reads and
    /// the point updates.
    fn index(&mut self) {
        let mut written = Vec::new();
        for (&row, chain) in &self.rows {
            for (i, version) in chain.versions.iter().enumerate() {
                let there = self.places.entry(version.place).or_default();
                if there.last() != Some(&row) {
                    there.push(row);
                }
                let carriers = self.carriers.entry(version.element).or_default();
                carriers.push((row, i + 1));
                written.push((version.element, row));
            }
        }
        for (_, _, op) in self.ops() {
            for row in rows_read(op) {
                written.extend(row.log.iter().map(|&element| (element, row.id)));
            }
            if let Statement::Append {
                scan: Scan::Point { id },
                element,
                ..
            } = op.statement
            {
                written.push((element, id));
            }
        }
        for (element, row) in written {
            if let Some(&Origin { txn, op, .. }) = self.origins.get(&element) {
                self.touch(txn, row, op);
            }
        }
    }
}
