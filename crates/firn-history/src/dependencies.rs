//! Turns observations into an order of instants and searches it for cycles.
//!
//! The nodes are the instants of the crate's documentation: the end of each transaction, the
//! instant of each plain read (one for all plain reads of a REPEATABLE READ transaction), and one
//! for each row that a locking scan meets or misses. Four sources add edges:
//!
//! - the order of statements in a transaction (`add_transaction`),
//! - rows met: the writer of the met version ended before the meeting, and the writer of the next
//!   version ends after it (`meet`),
//! - rows missed: the same for the versions in which the row was not in the scan (`miss`),
//! - the clock: an answer precedes every later request (`add_clock`).

use crate::graph::{EdgeKind, Graph};
use crate::history::{
    History, IsolationLevel, Op, Scan, Statement, StatementStatus, TimeSpan, TxnOutcome,
};
use crate::verdict::Verdict;
use crate::version_chains::{Chain, Chains, Fate, TxnIndex, rows_read};
use std::collections::{BTreeMap, HashSet};

mod cycles;

/// The meaning of a node of the graph.
#[derive(Debug, Clone, Copy)]
enum Instant {
    /// The end of a transaction: the instant at which its writes become visible and its locks are
    /// released.
    End(TxnIndex),
    /// An instant of a statement, by the statement's number in its transaction.
    In(TxnIndex, usize),
    /// A time of the clock.
    Clock,
}

/// The times between which an instant lies: not before `lo`, not after `hi`.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    lo: u64,
    hi: u64,
}

/// The instant at which a statement met or missed a row.
#[derive(Clone, Copy)]
struct Meeting {
    node: usize,
    bounds: Bounds,
    /// Whether the transaction keeps a lock on a met row until the transaction ends.
    locks: bool,
    /// Whether the statement is an update of the row, so that the version which it met is the one
    /// that its own version replaces. Not set for a delete.
    wrote: bool,
}

struct Builder<'a> {
    history: &'a History,
    chains: &'a Chains<'a>,
    verdict: &'a mut Verdict,
    graph: Graph,
    instants: Vec<Instant>,
    bounds: Vec<Bounds>,
    /// The node of each transaction's end.
    ends: Vec<usize>,
    /// The last time of each life but the last one.
    life_ends: BTreeMap<u32, u64>,
    /// The dependencies between committed transactions as a whole.
    transactions: Graph,
}

/// Orders the instants and reports the cycles.
pub(crate) fn judge<'a>(history: &'a History, chains: &'a Chains<'a>, verdict: &'a mut Verdict) {
    let mut builder = Builder {
        history,
        chains,
        verdict,
        graph: Graph::default(),
        instants: Vec::new(),
        bounds: Vec::new(),
        ends: Vec::new(),
        life_ends: life_ends(history),
        transactions: Graph::default(),
    };
    builder.add_ends();
    for t in 0..history.txns.len() {
        builder.add_transaction(t);
    }
    builder.add_clock();
    builder.search();
}

/// For each life but the last one: its last time, just before the first request of the next life.
fn life_ends(history: &History) -> BTreeMap<u32, u64> {
    let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
    for txn in &history.txns {
        for op in &txn.ops {
            let begin = begins.entry(txn.life).or_insert(u64::MAX);
            *begin = op.span.begin.min(*begin);
        }
    }
    let next = begins.values().skip(1).map(|begin| begin.saturating_sub(1));
    begins.keys().copied().zip(next).collect()
}

impl Builder<'_> {
    fn node(&mut self, instant: Instant, bounds: Bounds) -> usize {
        self.instants.push(instant);
        self.bounds.push(bounds);
        self.graph.node()
    }

    /// The bounds of an instant that lies between the request and the answer of `span`. If there is
    /// no answer, the instant lies before the end of the life.
    fn bounds_of(&self, span: TimeSpan, life: u32) -> Bounds {
        let lived = self.life_ends.get(&life).copied().unwrap_or(u64::MAX);
        Bounds {
            lo: span.begin,
            hi: span.end.unwrap_or(lived),
        }
    }

    fn add_ends(&mut self) {
        for (t, txn) in self.history.txns.iter().enumerate() {
            // The server may have ended a killed session before the client's next request, and
            // released its locks then. So a transaction of unknown outcome may have ended at any
            // time since the request of its last successful statement.
            let mut answered = txn
                .ops
                .iter()
                .filter(|op| op.status != StatementStatus::Failed);
            let last = answered.next_back().map_or(0, |op| op.span.begin);
            let asked = txn.end.filter(|_| txn.outcome != TxnOutcome::Unknown);
            let asked = asked.unwrap_or(TimeSpan {
                begin: last,
                end: None,
            });
            let bounds = self.bounds_of(asked, txn.life);
            let node = self.node(Instant::End(t), bounds);
            self.ends.push(node);
            self.transactions.node();
        }
    }

    fn add_transaction(&mut self, t: TxnIndex) {
        let txn = &self.history.txns[t];
        let (mut last, mut snapshot): (Option<usize>, Option<usize>) = (None, None);
        // Whether all statements so far that may have read at the snapshot have failed or were
        // undone. Then the snapshot has no latest time yet, because the answer to such a statement
        // does not prove that the snapshot was taken: the engine may have dropped that snapshot,
        // and a later statement may have taken a new one.
        let mut open_end = false;
        for (o, op) in txn.ops.iter().enumerate() {
            let failed = op.status == StatementStatus::Failed;
            let undone = op.status != StatementStatus::Done;
            let bounds = self.bounds_of(op.span, txn.life);
            let optimistic = self.is_optimistic(t, op);
            let consistent =
                optimistic || matches!(op.statement, Statement::Snapshot | Statement::Read { .. });
            let shared = consistent && txn.level != IsolationLevel::ReadCommitted;
            let vague = optimistic && undone && shared && (snapshot.is_none() || open_end);
            if vague {
                // If a failed or undone statement leaves a transaction without locks and writes,
                // the engine drops the transaction's snapshot, and the next statement takes a new
                // one. So this statement may or may not have taken the snapshot at which later ones
                // read, and the instant of the snapshot has no latest time until a later statement
                // reads at it.
                if snapshot.is_none() {
                    let first = self.node(Instant::In(t, o), bounds);
                    self.bounds[first].hi = u64::MAX;
                    if let Some(last) = last {
                        self.graph.edge(last, first, EdgeKind::Session, 0);
                    }
                    self.graph.edge(first, self.ends[t], EdgeKind::Session, 0);
                    (snapshot, open_end) = (Some(first), true);
                }
                continue;
            }
            if failed {
                continue;
            }
            if consistent && let Some(node) = snapshot {
                if std::mem::take(&mut open_end) {
                    self.bounds[node].hi = bounds.hi;
                }
                self.add_consistent(t, o, op, optimistic, node);
                continue;
            }
            let first = self.node(Instant::In(t, o), bounds);
            if let Some(last) = last {
                self.graph.edge(last, first, EdgeKind::Session, 0);
            }
            last = Some(first);
            if consistent {
                if shared {
                    snapshot = Some(first);
                }
                self.add_consistent(t, o, op, optimistic, first);
            } else {
                last = Some(self.add_locking(t, o, op, first, bounds));
            }
        }
        if let Some(last) = last {
            self.graph.edge(last, self.ends[t], EdgeKind::Session, 0);
        }
    }

    /// Whether the statement works on an optimistic table, in which it locks nothing.
    fn is_optimistic(&self, t: TxnIndex, op: &Op) -> bool {
        let lists = &self.history.setup.optimistic;
        if lists.is_empty() || self.history.txns[t].level == IsolationLevel::Serializable {
            return false;
        }
        let list = match &op.statement {
            Statement::Snapshot | Statement::Read { .. } => return false,
            Statement::Insert { row } => Some(row.list),
            Statement::Lock { scan, .. }
            | Statement::Append { scan, .. }
            | Statement::Delete { scan, .. } => match scan {
                Scan::Range { list, .. } => Some(*list),
                // Rows move only between lists of one table, so any list in which the row has been
                // tells which table it is in.
                Scan::Point { id } => {
                    let chain = self.chains.rows.get(id);
                    chain.and_then(|chain| chain.place(1)).map(|(list, _)| list)
                }
            },
        };
        list.is_some_and(|list| lists.contains(&list))
    }

    /// Adds the edges of a statement whose reads all happen at one instant, `node`.
    fn add_consistent(&mut self, t: TxnIndex, o: usize, op: &Op, optimistic: bool, node: usize) {
        match optimistic {
            true => self.add_optimistic(t, o, op, node),
            false => self.add_snapshot_read(t, o, op, node),
        }
    }

    /// Adds the edges of the rows that a statement in an optimistic table met and missed.
    fn add_optimistic(&mut self, t: TxnIndex, o: usize, op: &Op, node: usize) {
        let committed = self.chains.fates[t] == Fate::Committed;
        let (scan, wrote) = match &op.statement {
            Statement::Lock { scan, .. } | Statement::Delete { scan, .. } => (scan, false),
            // An UPDATE returns no rows. Which rows it has met is known only from later reads that
            // show its element in a row. Other transactions see the element only if the transaction
            // has committed, so consider only committed transactions.
            Statement::Append { scan, .. } if committed && op.status == StatementStatus::Done => {
                (scan, true)
            }
            _ => return,
        };
        let met: Vec<(u64, Option<usize>)> = match op.statement {
            Statement::Append { element, .. } => {
                let carriers = self.chains.carriers(element).iter();
                carriers
                    .map(|&(row, version)| (row, Some(version - 1)))
                    .collect()
            }
            _ => {
                let rows = rows_read(op).iter();
                rows.map(|row| (row.id, self.chains.version_of(row)))
                    .collect()
            }
        };
        let meeting = Meeting {
            node,
            bounds: self.bounds[node],
            // The commit has validated the row.
            locks: committed,
            wrote,
        };
        let seen: HashSet<u64> = met.iter().map(|&(row, _)| row).collect();
        for (row, version) in met {
            // At READ COMMITTED, a row that the transaction has written hides later versions by
            // others, so the read proves no order. The commit of the transaction fails anyway.
            let hides = !committed && self.chains.has_touched(t, row, o);
            if let Some(version @ 1..) = version
                && !hides
            {
                self.meet(t, meeting, row, version);
            }
        }
        let meeting = Meeting {
            locks: false,
            ..meeting
        };
        self.miss_others(t, o, meeting, scan, &seen);
    }

    /// Adds the edges of the rows that a read at one instant did not return although some version
    /// of them is in its scan.
    fn miss_others(
        &mut self,
        t: TxnIndex,
        o: usize,
        meeting: Meeting,
        scan: &Scan,
        seen: &HashSet<u64>,
    ) {
        let covered = self.chains.own_places(t, o);
        let updates = self.chains.updates_of_unknown_rows(t, o);
        for row in self.chains.rows_in(scan) {
            let places = || self.chains.rows[&row].versions.iter().map(|v| v.place);
            let updated = |update: &&Scan| places().any(|place| update.covers(row, place));
            if !seen.contains(&row)
                && !self.chains.has_touched(t, row, o)
                && !places().any(|place| covered.contains(&place))
                && !updates.iter().any(updated)
            {
                self.miss(t, meeting, scan, row);
            }
        }
    }

    fn add_snapshot_read(&mut self, t: TxnIndex, o: usize, op: &Op, node: usize) {
        let Statement::Read { scan, rows } = &op.statement else {
            return;
        };
        let bounds = self.bounds[node];
        let meeting = Meeting {
            node,
            bounds,
            locks: false,
            wrote: false,
        };
        let mut seen = HashSet::new();
        for row in rows {
            seen.insert(row.id);
            if self.chains.has_touched(t, row.id, o) {
                continue;
            }
            if let Some(version) = self.chains.version_of(row) {
                self.meet(t, meeting, row.id, version);
            }
        }
        self.miss_others(t, o, meeting, scan, &seen);
    }

    /// Adds the instants of a locking statement, in the order in which its scan passes the rows.
    /// Returns the last one.
    fn add_locking(
        &mut self,
        t: TxnIndex,
        o: usize,
        op: &Op,
        first: usize,
        bounds: Bounds,
    ) -> usize {
        let (scan, partial, wrote) = match &op.statement {
            Statement::Lock { scan, partial, .. } => (scan, *partial, false),
            Statement::Delete { scan, .. } => (scan, false, false),
            Statement::Append { scan, .. } => (scan, false, true),
            _ => return first,
        };
        let committed =
            self.chains.fates[t] == Fate::Committed && op.status == StatementStatus::Done;
        if wrote && !committed {
            // No later read shows which rows the statement met, so the statement proves no order.
            return first;
        }
        // The rows that it met, with the version of each.
        let mut met: Vec<(u64, usize)> = match op.statement {
            Statement::Append { element, .. } => {
                let carriers = self.chains.carriers(element).iter();
                carriers.map(|&(row, version)| (row, version - 1)).collect()
            }
            _ => {
                let rows = rows_read(op).iter();
                rows.filter_map(|row| Some((row.id, self.chains.version_of(row)?)))
                    .collect()
            }
        };
        let seen: HashSet<u64> = match op.statement {
            Statement::Append { .. } => met.iter().map(|&(row, _)| row).collect(),
            _ => rows_read(op).iter().map(|row| row.id).collect(),
        };
        // The transaction's own uncommitted rows have no version in the chains.
        met.retain(|&(_, version)| version > 0);
        let mut passed: Vec<(i64, u64, Option<usize>)> = Vec::new();
        for &(row, version) in &met {
            let place = self.chains.rows[&row]
                .place(version)
                .expect("a version has a place");
            passed.push((place.1, row, Some(version)));
        }
        let missed = match partial {
            true => Vec::new(),
            false => self.chains.rows_in(scan),
        };
        for row in missed {
            if !seen.contains(&row)
                && !self.chains.has_touched(t, row, o)
                && let Some(pos) = only_place(&self.chains.rows[&row], row, scan)
            {
                passed.push((pos, row, None));
            }
        }
        let order = match scan {
            Scan::Range { order, .. } => *order,
            Scan::Point { .. } => 1,
        };
        // Sort rows at the same position by id, because entries of the non-unique index are in this
        // order.
        let direction = i64::from(order);
        passed.sort_unstable_by_key(|&(pos, row, _)| (pos * direction, row as i64 * direction));
        let mut last = first;
        let mut between = Vec::new();
        for (_, row, version) in passed {
            let node = self.node(Instant::In(t, o), bounds);
            self.graph.edge(last, node, EdgeKind::Session, 0);
            match order {
                0 => between.push(node),
                _ => last = node,
            }
            let meeting = Meeting {
                node,
                bounds,
                locks: true,
                wrote,
            };
            match version {
                Some(version) => self.meet(t, meeting, row, version),
                None => self.miss(t, meeting, scan, row),
            }
        }
        if order == 0 {
            last = self.node(Instant::In(t, o), bounds);
            for node in between {
                self.graph.edge(node, last, EdgeKind::Session, 0);
            }
        }
        last
    }

    fn depends(&mut self, from: TxnIndex, to: TxnIndex, kind: EdgeKind, row: u64) {
        let fates = &self.chains.fates;
        if fates[from] == Fate::Committed && fates[to] == Fate::Committed && from != to {
            self.transactions.edge(from, to, kind, row);
        }
    }

    /// Whether transaction `t` may have missed the writes of `writer` although `writer` committed
    /// before. After a failed sync the engine hides the commits that may not be durable. A hidden
    /// commit gets no answer, and the next open of the database may find it in the log after all.
    fn may_be_hidden(&self, t: TxnIndex, writer: TxnIndex) -> bool {
        let (reader, writer) = (&self.history.txns[t], &self.history.txns[writer]);
        self.history.setup.hides_unsynced
            && writer.outcome == TxnOutcome::Unknown
            && reader.life == writer.life
            && self.life_ends.contains_key(&writer.life)
    }

    /// Transaction `t` has met `version` of `row`. Adds the two orders that follow: the end of the
    /// transaction that wrote the version is before the meeting; and the meeting, or the end of `t`
    /// if it met the row with a lock, is before the end of the transaction that wrote the next
    /// version.
    fn meet(&mut self, t: TxnIndex, meeting: Meeting, row: u64, version: usize) {
        let chains = self.chains;
        let chain = &chains.rows[&row];
        let from = if meeting.wrote {
            EdgeKind::Ww
        } else {
            EdgeKind::Wr
        };
        if let Some(writer) = chain.writer(version)
            && writer != t
        {
            self.graph.edge(self.ends[writer], meeting.node, from, row);
            self.depends(writer, t, from, row);
            if version < chain.len() && chain.writer(version + 1) == Some(writer) {
                let ids = [self.history.txns[t].id, self.history.txns[writer].id];
                let story = format!("T{} saw row {row} in the middle of T{}", ids[0], ids[1]);
                self.verdict.find("G1b", &ids, story);
            }
        }
        let next = (version + 1..=chain.len() + 1).find_map(|i| {
            let writer = chain.writer(i)?;
            (writer != t).then_some(writer)
        });
        if let Some(next) = next
            && (meeting.wrote || !self.may_be_hidden(t, next))
        {
            let kind = if meeting.wrote {
                EdgeKind::Ww
            } else {
                EdgeKind::Rw
            };
            let before = if meeting.locks {
                self.ends[t]
            } else {
                meeting.node
            };
            self.graph.edge(before, self.ends[next], kind, row);
            self.depends(t, next, kind, row);
        }
    }

    /// Adds the orders that follow if transaction `t` scanned a range and did not meet `row`,
    /// although some version of the row lies in the range. At the instant of the scan (`meeting`),
    /// the current version of the row must have lain outside of the range. The times in the history
    /// may allow several such versions. So the transaction that wrote the first of them ended
    /// before the instant, and the transaction that wrote the version after the last of them ends
    /// after the instant.
    fn miss(&mut self, t: TxnIndex, meeting: Meeting, scan: &Scan, row: u64) {
        let chains = self.chains;
        let chain = &chains.rows[&row];
        let Bounds { lo, hi } = meeting.bounds;
        let life = self.history.txns[t].life;
        let mut exits = chain.lost_exits.iter();
        if exits.any(|&(of, begin)| of == life && begin <= hi) {
            return;
        }
        let end_of = |writer: TxnIndex| self.bounds[self.ends[writer]];
        let last = chain.len() + usize::from(chain.deleted.is_some());
        let could_be = |&i: &usize| {
            let next = if i < last { chain.writer(i + 1) } else { None };
            let made = chain.writer(i);
            let inside = i > 0 && i < last && made == next;
            let elsewhere = chain.place(i).is_none_or(|place| !scan.covers(row, place));
            let not_yet = made.is_some_and(|writer| end_of(writer).lo > hi);
            let no_more = next.is_some_and(|writer| end_of(writer).hi < lo);
            !inside && elsewhere && !not_yet && !no_more
        };
        let mut versions = (0..=last).filter(could_be);
        let Some(first) = versions.next() else {
            let id = self.history.txns[t].id;
            let story = format!("T{id} did not meet row {row}, which was there all the time");
            self.verdict.find("lost row", &[id], story);
            return;
        };
        let latest = versions.next_back().unwrap_or(first);
        let made = chain.writer(first).filter(|&writer| writer != t);
        let next = match latest < last {
            true => chain.writer(latest + 1).filter(|&writer| writer != t),
            false => None,
        };
        // A failed sync may have hidden the commit of `next`. Then scans before and after the
        // commit miss its writes alike, so the miss proves no order.
        let next = next.filter(|&writer| !self.may_be_hidden(t, writer));
        // Leave out edges that the clock implies.
        if let Some(writer) = made
            && end_of(writer).hi >= lo
        {
            self.graph
                .edge(self.ends[writer], meeting.node, EdgeKind::Wr, row);
        }
        if let Some(next) = next
            && hi >= self.bounds[self.ends[next]].lo
        {
            self.graph
                .edge(meeting.node, self.ends[next], EdgeKind::RwRange, row);
        }
        // Add a dependency between whole transactions only for a transaction that moved the row out
        // of the range before the scan, or moves it into the range later. A scan does not depend on
        // other changes of a row outside of its range.
        let covered = |i: usize| chain.place(i).is_some_and(|place| scan.covers(row, place));
        let leaver = made.filter(|_| first > 0 && covered(first - 1));
        if let Some(leaver) = leaver {
            self.depends(leaver, t, EdgeKind::Wr, row);
        }
        let mut later = latest + 1..=chain.len();
        let comer = later.find(|&i| covered(i)).and_then(|i| chain.writer(i));
        let comer = comer.filter(|&comer| comer != t && !self.may_be_hidden(t, comer));
        if let Some(comer) = comer {
            self.depends(t, comer, EdgeKind::RwRange, row);
        }
        if !meeting.locks || self.history.txns[t].level == IsolationLevel::ReadCommitted {
            return;
        }
        // The scan has locked the gaps of its range. So a transaction that puts a row into the
        // range waits until transaction `t` has ended.
        let end = self.ends[t];
        if let Some(comer) = comer
            && self.bounds[end].hi >= self.bounds[self.ends[comer]].lo
        {
            self.graph.edge(end, self.ends[comer], EdgeKind::Gap, row);
        }
    }

    /// Orders instants by the clock: each before all instants requested after its answer. One chain
    /// of clock nodes, one for each time of an answer, keeps the number of edges linear.
    fn add_clock(&mut self) {
        let nodes = self.instants.len();
        let mut times: Vec<u64> = self.bounds.iter().map(|b| b.hi).collect();
        times.retain(|&hi| hi != u64::MAX);
        times.sort_unstable();
        times.dedup();
        let ticks: Vec<usize> = times
            .iter()
            .map(|&time| self.node(Instant::Clock, Bounds { lo: time, hi: time }))
            .collect();
        for pair in ticks.windows(2) {
            self.graph.edge(pair[0], pair[1], EdgeKind::Time, 0);
        }
        for node in 0..nodes {
            let Bounds { lo, hi } = self.bounds[node];
            if let Ok(at) = times.binary_search(&hi) {
                self.graph.edge(node, ticks[at], EdgeKind::Time, 0);
            }
            let before = times.partition_point(|&time| time < lo);
            if before > 0 {
                self.graph.edge(ticks[before - 1], node, EdgeKind::Time, 0);
            }
        }
        self.verdict.instants = nodes as u64;
    }
}

/// The position at which the scan would meet the row; `None` if its versions have several
/// positions in the scan.
fn only_place(chain: &Chain, row: u64, scan: &Scan) -> Option<i64> {
    if let Scan::Point { .. } = scan {
        return Some(0);
    }
    let places = chain.versions.iter().map(|version| version.place);
    let mut there = places.filter(|&place| scan.covers(row, place));
    let first = there.next()?;
    there.all(|place| place == first).then_some(first.1)
}
