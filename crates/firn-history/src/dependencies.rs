//! From observations to an order of instants, and to cycles in it.

use crate::graph::{EdgeKind, Graph};
use crate::history::{
    History, IsolationLevel, Op, Scan, Statement, StatementStatus, TimeSpan, TxnOutcome,
};
use crate::verdict::Verdict;
use crate::version_chains::{Chain, Chains, Fate, TxnIndex, rows_read};
use std::collections::{BTreeMap, HashSet};

mod cycles;

/// What stands behind a node of the graph.
#[derive(Debug, Clone, Copy)]
enum Instant {
    /// The end of a transaction: its writes are there, its locks are gone.
    End(TxnIndex),
    /// In a statement.
    In(TxnIndex, usize),
    /// Nothing but the clock.
    Clock,
}

/// When an instant may have been: not before `lo`, not after `hi`.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    lo: u64,
    hi: u64,
}

/// How a statement met a row.
#[derive(Clone, Copy)]
struct Meeting {
    node: usize,
    bounds: Bounds,
    /// It holds a lock on the row until the transaction ends.
    locks: bool,
    /// It wrote on top of what it met.
    wrote: bool,
}

struct Builder<'a> {
    history: &'a History,
    chains: &'a Chains<'a>,
    verdict: &'a mut Verdict,
    graph: Graph,
    instants: Vec<Instant>,
    bounds: Vec<Bounds>,
    ends: Vec<usize>,
    /// By life: its last moment. The last life has none.
    life_ends: BTreeMap<u32, u64>,
    /// The same between whole transactions.
    transactions: Graph,
}

/// Judges what the chains alone do not show.
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

/// A life ends before the next one's first statement.
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

    /// An answer that never came would have come before the next life began.
    fn bounds_of(&self, span: TimeSpan, life: u32) -> Bounds {
        let lived = self.life_ends.get(&life).copied().unwrap_or(u64::MAX);
        Bounds {
            lo: span.begin,
            hi: span.end.unwrap_or(lived),
        }
    }

    fn add_ends(&mut self) {
        for (t, txn) in self.history.txns.iter().enumerate() {
            // A session may be gone before its next statement tells it so: also before a commit
            // that stays without an answer, which then released its locks when the session ended.
            let mut told = txn
                .ops
                .iter()
                .filter(|op| op.status != StatementStatus::Failed);
            let last = told.next_back().map_or(0, |op| op.span.begin);
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
        let (mut last, mut snapshot) = (None, None);
        for (o, op) in txn.ops.iter().enumerate() {
            if op.status == StatementStatus::Failed {
                continue;
            }
            let bounds = self.bounds_of(op.span, txn.life);
            let consistent = matches!(op.statement, Statement::Snapshot | Statement::Read { .. });
            if consistent && let Some(node) = snapshot {
                self.add_snapshot_read(t, o, op, node);
                continue;
            }
            let first = self.node(Instant::In(t, o), bounds);
            if let Some(last) = last {
                self.graph.edge(last, first, EdgeKind::Session, 0);
            }
            last = Some(first);
            if consistent {
                if txn.level == IsolationLevel::RepeatableRead {
                    snapshot = Some(first);
                }
                self.add_snapshot_read(t, o, op, first);
            } else {
                last = Some(self.add_locking(t, o, op, first, bounds));
            }
        }
        if let Some(last) = last {
            self.graph.edge(last, self.ends[t], EdgeKind::Session, 0);
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
        let covered = self.chains.own_places(t, o);
        for row in self.chains.rows_in(scan) {
            let mut places = self.chains.rows[&row].versions.iter().map(|v| v.place);
            if !seen.contains(&row)
                && !self.chains.has_touched(t, row, o)
                && !places.any(|place| covered.contains(&place))
            {
                self.miss(t, meeting, scan, row);
            }
        }
    }

    /// Adds the instants of a statement that locks what it meets. Returns the last one.
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
            // Nobody knows which rows it met.
            return first;
        }
        // Rows with the version that was met.
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
        // A row of its own may be in no version that others know.
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
        // Rows in one place lie in the order of their ids, where more than one can be there at a
        // time.
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

    /// The statement met this version of the row.
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
        if let Some(next) = next {
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

    /// The statement looked where the row was at some time, and did not meet it.
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
        // What the clock says anyhow needs no edge.
        if let Some(writer) = made {
            if end_of(writer).hi >= lo {
                self.graph
                    .edge(self.ends[writer], meeting.node, EdgeKind::Wr, row);
            }
            self.depends(writer, t, EdgeKind::Wr, row);
        }
        if let Some(next) = next {
            if hi >= self.bounds[self.ends[next]].lo {
                self.graph
                    .edge(meeting.node, self.ends[next], EdgeKind::RwRange, row);
            }
            self.depends(t, next, EdgeKind::RwRange, row);
        }
        if !meeting.locks || self.history.txns[t].level != IsolationLevel::RepeatableRead {
            return;
        }
        // Who brings the row into the range later waits for a lock on the gap.
        let covered = |&i: &usize| chain.place(i).is_some_and(|place| scan.covers(row, place));
        let comer = (latest + 1..=chain.len()).find(covered);
        let comer = comer
            .and_then(|i| chain.writer(i))
            .filter(|&comer| comer != t);
        let end = self.ends[t];
        if let Some(comer) = comer
            && self.bounds[end].hi >= self.bounds[self.ends[comer]].lo
        {
            self.graph.edge(end, self.ends[comer], EdgeKind::Gap, row);
        }
    }

    /// Orders instants by the clock: one after the answer, before what was asked for later.
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

/// Where the row would be met, if its versions name one place only.
fn only_place(chain: &Chain, row: u64, scan: &Scan) -> Option<i64> {
    if let Scan::Point { .. } = scan {
        return Some(0);
    }
    let places = chain.versions.iter().map(|version| version.place);
    let mut there = places.filter(|&place| scan.covers(row, place));
    let first = there.next()?;
    there.all(|place| place == first).then_some(first.1)
}
