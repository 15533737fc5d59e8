//! A client thread: runs random transactions in a session, and records each statement and its
//! result in the history.

use super::abi::{
    Cursor, Find, Outcome, Server, Session, TABLES, key, list_index, primary_of, record_of, row_of,
};
use super::{Shared, pauses};
use crate::tiny_options::{chance, one_of};
use firn_capi::cursor::{firn_read_mode, firn_wait};
use firn_capi::error::firn_status;
use firn_history::history::Element;
use firn_history::{
    IsolationLevel, Op, Row, Scan, Statement, StatementStatus, TimeSpan, Txn, TxnOutcome,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const LISTS_A_TABLE: usize = 2;
const ROWS: usize = 5;
const POS_MAX: i64 = 1 << 40;

/// The lists of a run: two in each table, numbered from 0, and one more in table 1, the bank,
/// between whose rows transfers move amounts.
pub(super) struct Lists {
    /// By table: whether it is optimistic.
    tables: [bool; TABLES],
}

impl Lists {
    pub(super) fn new(tables: [bool; TABLES]) -> Self {
        Self { tables }
    }

    /// The lists in optimistic tables.
    pub(super) fn optimistic(&self) -> Vec<u64> {
        self.all()
            .filter(|&list| self.tables[self.table(list)])
            .collect()
    }

    pub(super) fn bank(&self) -> u64 {
        (TABLES * LISTS_A_TABLE) as u64
    }

    /// The table that a list is in.
    fn table(&self, list: u64) -> usize {
        match list == self.bank() {
            true => 1,
            false => list as usize / LISTS_A_TABLE,
        }
    }

    fn all(&self) -> std::ops::RangeInclusive<u64> {
        0..=self.bank()
    }
}

/// A client thread, with its part of the history over several lives of the database.
pub(super) struct Client<'a> {
    shared: &'a Shared,
    rng: StdRng,
    number: usize,
    pub(super) life: u32,
    pub(super) history: Vec<Txn>,
    /// The active transaction.
    txn: Option<Txn>,
    autocommit: bool,
    /// Whether the transaction must end if the next statement fails, because the client has begun a
    /// group of statements that must succeed together.
    ends: bool,
    /// The rows that the last scan of each list returned, by list.
    known: BTreeMap<u64, Vec<Row>>,
    /// Bytes of filling in the rows that this transaction writes.
    pad: usize,
}

/// Whether the status is one that calls return after the environment has died.
fn is_end(status: firn_status) -> bool {
    use firn_status::{FIRN_IO, FIRN_NO_SPACE, FIRN_POISONED, FIRN_SHUTDOWN};
    matches!(
        status,
        FIRN_IO | FIRN_NO_SPACE | FIRN_POISONED | FIRN_SHUTDOWN
    )
}

fn in_order(list: u64, (from, to): (i64, i64), forward: bool) -> Scan {
    let order = if forward { 1 } else { -1 };
    Scan::Range {
        list,
        from,
        to,
        order,
        even: false,
    }
}

/// Called for each row of a scan, with the cursor on that row.
type Visit<'v> = dyn FnMut(&mut Cursor<'_, '_>, Row) -> Outcome<()> + 'v;

impl<'a> Client<'a> {
    pub(super) fn new(number: usize, shared: &'a Shared, seed: u64) -> Self {
        Self {
            shared,
            rng: StdRng::seed_from_u64(seed),
            number,
            life: 0,
            history: Vec::new(),
            txn: None,
            autocommit: false,
            ends: false,
            known: BTreeMap::new(),
            pad: 0,
        }
    }

    pub(super) fn level(&self) -> IsolationLevel {
        self.shared.level
    }

    fn now(&self) -> u64 {
        Shared::next(&self.shared.clock)
    }

    fn element(&self) -> Element {
        Shared::next(&self.shared.elements)
    }

    fn begin(&mut self) {
        self.txn = Some(Txn {
            id: Shared::next(&self.shared.ids),
            life: self.life,
            level: self.shared.level,
            outcome: TxnOutcome::Failed,
            end: None,
            ops: Vec::new(),
        });
    }

    fn finish(&mut self, outcome: TxnOutcome, end: Option<TimeSpan>) {
        let mut txn = self.txn.take().expect("a transaction was begun");
        txn.outcome = outcome;
        txn.end = end;
        self.history.push(txn);
    }

    /// Runs a statement and records it with its result and times.
    fn statement(
        &mut self,
        session: &mut Session<'_>,
        mut statement: Statement,
        run: impl FnOnce(&mut Self, &mut Session<'_>, &mut Statement) -> Outcome<()>,
    ) -> Outcome<()> {
        let begin = self.now();
        session.begin_statement(self.autocommit);
        let done = run(self, session, &mut statement);
        let status = match done {
            Ok(()) => StatementStatus::Done,
            Err(_) => StatementStatus::Failed,
        };
        match done {
            Ok(()) => session.end_statement(),
            Err(_) => session.rollback_statement(),
        }
        let end = Some(self.now());
        let op = Op {
            span: TimeSpan { begin, end },
            status,
            statement,
        };
        self.txn
            .as_mut()
            .expect("a transaction was begun")
            .ops
            .push(op);
        done
    }

    /// Visits the rows of a scan.
    fn scan(
        &mut self,
        session: &mut Session<'_>,
        scan: Scan,
        mode: firn_read_mode,
        wait: firn_wait,
        semi: bool,
        visit: &mut Visit<'_>,
    ) -> Outcome<()> {
        let Scan::Range {
            list,
            from,
            to,
            order,
            ..
        } = scan
        else {
            return Ok(());
        };
        let table = self.shared.lists.table(list);
        let prefix = key(&[list as i64]);
        let mut cursor = session.cursor(table, list_index(table), mode, wait)?;
        if semi {
            cursor.set_semi_consistent();
        }
        let whole = from == 0 && to == POS_MAX;
        // The number of the list is the first column of the index, and the position in the list the
        // second. The server may read a whole list by the first column alone, with an exact seek
        // and then `next_same`.
        let same = whole && order > 0 && self.rng.random();
        let mut found = if same {
            cursor.seek(&prefix, Find::Exact)?
        } else if order > 0 {
            cursor.end_range(&key(&[list as i64, to]))?;
            cursor.seek(&key(&[list as i64, from]), Find::AtOrAfter)?
        } else {
            cursor.seek(&key(&[list as i64, to]), Find::LastAtOrBefore)?
        };
        while found {
            let row = row_of(&cursor.record);
            if row.list != list || !(from..=to).contains(&row.pos) {
                // A backward scan has read a row below its range, because a cursor bounds only
                // forward scans. Release that row's lock, as the server does for a row that does
                // not match.
                if mode != firn_read_mode::FIRN_READ_SNAPSHOT {
                    cursor.unlock_row()?;
                    cursor.forget_row()?;
                }
                break;
            }
            // If the row was returned without its lock, the next move returns it again, locked.
            if !cursor.was_semi_consistent() {
                visit(&mut cursor, row)?;
            }
            found = match (same, order > 0) {
                (true, _) => cursor.next_same(&prefix)?,
                (false, true) => cursor.next()?,
                (false, false) => cursor.prev()?,
            };
        }
        Ok(())
    }

    /// Looks up one row by a unique key and calls `visit` for it. The key is the row's list and
    /// position in table 0, and the row's id in the other tables.
    fn point(
        &mut self,
        session: &mut Session<'_>,
        row: &Row,
        mode: firn_read_mode,
        visit: &mut Visit<'_>,
    ) -> Outcome<()> {
        let table = self.shared.lists.table(row.list);
        let (index, key) = match table {
            0 => (0, key(&[row.list as i64, row.pos])),
            1 => (0, key(&[row.id as i64])),
            _ => (2, key(&[row.id as i64])),
        };
        let mut cursor = session.cursor(table, index, mode, firn_wait::FIRN_WAIT)?;
        if cursor.get(&key)? {
            let row = row_of(&cursor.record);
            visit(&mut cursor, row)?;
        }
        Ok(())
    }

    fn bounds(&mut self, list: u64) -> (i64, i64) {
        let all = (0, POS_MAX);
        match self.known.get(&list) {
            Some(rows) if !rows.is_empty() && chance(&mut self.rng, 40) => {
                let (a, b) = (rows[self.rng.random_range(0..rows.len())].pos, rows[0].pos);
                (a.min(b), a.max(b))
            }
            _ => all,
        }
    }

    fn read(
        &mut self,
        session: &mut Session<'_>,
        list: u64,
        bounds: (i64, i64),
        mode: firn_read_mode,
        wait: firn_wait,
    ) -> Outcome<()> {
        let scan = in_order(list, bounds, chance(&mut self.rng, 65));
        let partial = wait == firn_wait::FIRN_SKIP_LOCKED;
        let statement = match mode {
            firn_read_mode::FIRN_READ_SNAPSHOT => Statement::Read {
                scan,
                rows: Vec::new(),
            },
            _ => Statement::Lock {
                scan,
                rows: Vec::new(),
                partial,
            },
        };
        let mut seen = Vec::new();
        self.statement(session, statement, |client, session, statement| {
            client.scan(session, scan, mode, wait, false, &mut |_, row| {
                seen.push(row);
                Ok(())
            })?;
            if let Statement::Read { rows, .. } | Statement::Lock { rows, .. } = statement {
                rows.clone_from(&seen);
            }
            Ok(())
        })?;
        self.known.insert(list, seen);
        Ok(())
    }

    fn snapshot_read(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let bounds = self.bounds(list);
        let mode = firn_read_mode::FIRN_READ_SNAPSHOT;
        self.read(session, list, bounds, mode, firn_wait::FIRN_WAIT)
    }

    fn lock(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        use firn_read_mode::{FIRN_READ_LOCK_EXCLUSIVE, FIRN_READ_LOCK_SHARED};
        use firn_wait::{FIRN_SKIP_LOCKED, FIRN_WAIT};
        let bounds = self.bounds(list);
        let mode = one_of(
            &mut self.rng,
            &[
                FIRN_READ_LOCK_EXCLUSIVE,
                FIRN_READ_LOCK_EXCLUSIVE,
                FIRN_READ_LOCK_SHARED,
            ],
        );
        let wait = one_of(
            &mut self.rng,
            &[FIRN_WAIT, FIRN_WAIT, FIRN_WAIT, FIRN_SKIP_LOCKED],
        );
        self.read(session, list, bounds, mode, wait)
    }

    fn append(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let (bounds, forward) = (self.bounds(list), chance(&mut self.rng, 65));
        let (mut scan, element, pad) = (in_order(list, bounds, forward), self.element(), self.pad);
        if let Scan::Range { even, .. } = &mut scan {
            *even = chance(&mut self.rng, 25);
        }
        let semi = self.shared.level == IsolationLevel::ReadCommitted && self.rng.random();
        let statement = Statement::Append {
            scan,
            element,
            add: 0,
            to: None,
            renames: false,
            count: None,
        };
        self.statement(session, statement, |client, session, statement| {
            let mut changed = 0;
            let (mode, wait) = (
                firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE,
                firn_wait::FIRN_WAIT,
            );
            let gives_back = client.shared.level == IsolationLevel::ReadCommitted;
            client.scan(session, scan, mode, wait, semi, &mut |cursor, mut row| {
                if !scan.covers(row.id, (row.list, row.pos)) {
                    cursor.forget_row()?;
                    return if gives_back {
                        cursor.unlock_row()
                    } else {
                        Ok(())
                    };
                }
                row.log.push(element);
                changed += 1;
                let primary = primary_of(&cursor.record);
                cursor.update(&record_of(&row, primary, pad))
            })?;
            if let Statement::Append { count, .. } = statement {
                *count = Some(changed);
            }
            Ok(())
        })
    }

    /// Updates a row that was read before: appends an element, adds `amount` to the row's amount,
    /// and moves the row to another list and position if `place` is given. With `stale`, the new
    /// version is made from `row` as it was read before, and not from the row as it is found now.
    /// That is correct only if the transaction has held the row's lock since then.
    fn append_to(
        &mut self,
        session: &mut Session<'_>,
        row: &Row,
        amount: i64,
        place: Option<(u64, i64)>,
        stale: bool,
    ) -> Outcome<()> {
        let (element, pad) = (self.element(), self.pad);
        // In table 0, look the row up by its list and position, which are the primary key there. By
        // now another row may be at that position.
        let scan = match self.shared.lists.table(row.list) {
            0 => in_order(row.list, (row.pos, row.pos), true),
            _ => Scan::Point { id: row.id },
        };
        let statement = Statement::Append {
            scan,
            element,
            add: amount,
            to: place,
            renames: false,
            count: None,
        };
        self.statement(session, statement, |client, session, statement| {
            let mut changed = 0;
            let mode = firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE;
            client.point(session, row, mode, &mut |cursor, found| {
                let mut new = if stale { row.clone() } else { found };
                new.log.push(element);
                new.amount += amount;
                (new.list, new.pos) = place.unwrap_or((new.list, new.pos));
                changed += 1;
                let primary = primary_of(&cursor.record);
                cursor.update(&record_of(&new, primary, pad))
            })?;
            if let Statement::Append { count, .. } = statement {
                *count = Some(changed);
            }
            Ok(())
        })
    }

    fn some_row(&mut self, list: u64) -> Option<Row> {
        let rows = self.known.get(&list).filter(|rows| !rows.is_empty())?;
        Some(rows[self.rng.random_range(0..rows.len())].clone())
    }

    fn append_to_one(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        match self.some_row(list) {
            Some(row) => self.append_to(session, &row, 0, None, false),
            None => Ok(()),
        }
    }

    /// Locks and reads all rows of a list. Then appends an element to one of these rows and writes
    /// the row back, as it was read under the lock.
    fn read_and_write(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let mode = firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE;
        self.read(session, list, (0, POS_MAX), mode, firn_wait::FIRN_WAIT)?;
        match self.some_row(list) {
            Some(row) => self.append_to(session, &row, 0, None, true),
            None => Ok(()),
        }
    }

    fn position(&mut self) -> i64 {
        let unique = Shared::next(&self.shared.ids) as i64;
        (self.rng.random_range(0..1000) << 30) + unique
    }

    fn insert(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let pos = self.position();
        self.insert_at(session, list, pos)
    }

    fn insert_at(&mut self, session: &mut Session<'_>, list: u64, pos: i64) -> Outcome<()> {
        let row = Row {
            id: Shared::next(&self.shared.ids),
            list,
            pos,
            amount: 0,
            log: vec![self.element()],
        };
        let table = self.shared.lists.table(list);
        // Lookups by id use the primary key of table 1, so `id` must be the row's id there. Table 0
        // has the primary key (list, pos) and no index on `id`.
        let primary = match table {
            2 => self.new_primary(row.id),
            _ => row.id as i64,
        };
        let record = record_of(&row, primary, self.pad);
        self.statement(session, Statement::Insert { row }, |_, session, _| {
            session.insert(table, &record)
        })
    }

    /// Deletes a few rows, then inserts one. The inserted row shows whether a commit of unknown
    /// outcome took effect, which deleted rows alone do not show. The insert comes last, so that
    /// the deletion does not remove the new row.
    fn delete(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        // If the insert fails, roll the deletion back too.
        self.ends = true;
        if let Some(first) = self.some_row(list) {
            self.delete_from(session, list, &first)?;
        }
        self.insert(session, list)?;
        self.ends = false;
        Ok(())
    }

    /// Deletes a row, or the rows from there on up to a distance.
    fn delete_from(&mut self, session: &mut Session<'_>, list: u64, first: &Row) -> Outcome<()> {
        let far = self.rng.random_range(0..2) << 36;
        self.delete_range(session, list, (first.pos, first.pos + far))
    }

    fn delete_range(
        &mut self,
        session: &mut Session<'_>,
        list: u64,
        bounds: (i64, i64),
    ) -> Outcome<()> {
        let scan = in_order(list, bounds, chance(&mut self.rng, 65));
        let statement = Statement::Delete {
            scan,
            rows: Vec::new(),
        };
        self.statement(session, statement, |client, session, statement| {
            let mut gone = Vec::new();
            let (mode, wait) = (
                firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE,
                firn_wait::FIRN_WAIT,
            );
            client.scan(session, scan, mode, wait, false, &mut |cursor, row| {
                gone.push(row);
                cursor.delete()
            })?;
            if let Statement::Delete { rows, .. } = statement {
                *rows = gone;
            }
            Ok(())
        })
    }

    /// Deletes a row and inserts another one at the same list and position.
    fn replace(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let Some(old) = self.some_row(list) else {
            return Ok(());
        };
        self.ends = true;
        self.delete_range(session, list, (old.pos, old.pos))?;
        self.insert_at(session, list, old.pos)?;
        self.ends = false;
        Ok(())
    }

    /// A primary key that no row has had: above all others, or below all others.
    fn new_primary(&mut self, unique: u64) -> i64 {
        let unique = unique as i64;
        if self.rng.random() { unique } else { -unique }
    }

    /// Gives a row of table 2 another primary key; in other tables, appends to a row.
    fn rename(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let Some(row) = self.some_row(list) else {
            return Ok(());
        };
        if self.shared.lists.table(list) != 2 {
            return self.append_to(session, &row, 0, None, false);
        }
        let scan = in_order(list, (row.pos, row.pos), true);
        let unique = Shared::next(&self.shared.ids);
        let (element, pad, primary) = (self.element(), self.pad, self.new_primary(unique));
        let statement = Statement::Append {
            scan,
            element,
            add: 0,
            to: None,
            renames: true,
            count: None,
        };
        self.statement(session, statement, |_, session, statement| {
            let mode = firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE;
            let mut cursor = session.cursor(2, list_index(2), mode, firn_wait::FIRN_WAIT)?;
            let found = cursor.get(&key(&[list as i64, row.pos]))?;
            if found {
                let mut new = row_of(&cursor.record);
                new.log.push(element);
                cursor.update(&record_of(&new, primary, pad))?;
            }
            if let Statement::Append { count, .. } = statement {
                *count = Some(u64::from(found));
            }
            Ok(())
        })
    }

    /// Moves a row to another list and position in its table; not in table 0, where they are the
    /// primary key.
    fn relocate(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let table = self.shared.lists.table(list);
        match self.some_row(list) {
            Some(row) if table > 0 => {
                let other =
                    (table * LISTS_A_TABLE + self.rng.random_range(0..LISTS_A_TABLE)) as u64;
                let place = (other, self.position());
                self.append_to(session, &row, 0, Some(place), false)
            }
            _ => Ok(()),
        }
    }

    fn transfer(&mut self, session: &mut Session<'_>) -> Outcome<()> {
        let bank = self.shared.lists.bank();
        let (Some(from), Some(to)) = (self.some_row(bank), self.some_row(bank)) else {
            return self.snapshot_read(session, bank);
        };
        if from.id == to.id {
            return Ok(());
        }
        let amount = self.rng.random_range(1..100);
        // If the update of the second row fails, the update of the first one must be rolled back
        // too.
        self.ends = true;
        self.append_to(session, &from, -amount, None, false)?;
        self.append_to(session, &to, amount, None, false)?;
        self.ends = false;
        Ok(())
    }

    fn savepoint(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        let mark = session.savepoint()?;
        let first = self.txn.as_ref().expect("begun").ops.len();
        self.append(session, list)?;
        self.insert(session, list)?;
        session.rollback_to(mark)?;
        for op in &mut self.txn.as_mut().expect("begun").ops[first..] {
            if op.status == StatementStatus::Done {
                op.status = StatementStatus::Undone;
            }
        }
        Ok(())
    }

    fn any_list(&mut self) -> u64 {
        self.rng.random_range(0..self.shared.lists.bank())
    }

    fn act(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        match self.rng.random_range(0..30) {
            0..=3 => self.snapshot_read(session, list),
            4..=6 => self.lock(session, list),
            7..=10 => self.append(session, list),
            11..=12 => self.append_to_one(session, list),
            13..=15 => self.read_and_write(session, list),
            16..=17 => self.insert(session, list),
            18..=19 => self.delete(session, list),
            20..=21 => self.relocate(session, list),
            22..=23 => self.transfer(session),
            24..=26 => self.rename(session, list),
            27..=28 => self.replace(session, list),
            _ => self.savepoint(session, list),
        }
    }

    /// Runs transactions, until their number is reached or the environment has died.
    pub(super) fn work(&mut self, session: &mut Session<'_>, transactions: usize) {
        pauses::begin(self.rng.random());
        self.known.clear();
        let mut done = 0;
        while done < transactions && self.transaction(session).is_ok() {
            done += 1;
        }
        pauses::end();
    }

    /// Runs one transaction. Fails only if the environment has died.
    fn transaction(&mut self, session: &mut Session<'_>) -> Outcome<()> {
        self.begin();
        self.pad = one_of(&mut self.rng, &[0, 0, 100, 2000]);
        self.autocommit = chance(&mut self.rng, 20);
        let statements = if self.autocommit {
            1
        } else {
            self.rng.random_range(1..6)
        };
        let mut list = self.any_list();
        let explicit =
            self.shared.level == IsolationLevel::RepeatableRead && chance(&mut self.rng, 10);
        if explicit && !self.autocommit {
            let taken = self.statement(session, Statement::Snapshot, |_, session, _| {
                session.consistent_snapshot()
            });
            taken.expect("a snapshot is taken");
        }
        for _ in 0..statements {
            if chance(&mut self.rng, 30) {
                list = self.any_list();
            }
            let done = match self.autocommit {
                true => self.single(session, list),
                false => self.act(session, list),
            };
            let Err(status) = done else {
                continue;
            };
            // The statement was rolled back. The transaction may go on, but a deadlock victim must
            // end.
            let ends = std::mem::take(&mut self.ends);
            let goes_on = !ends && status != firn_status::FIRN_DEADLOCK && self.rng.random();
            if is_end(status) || !goes_on {
                return self.end(session, None, is_end(status).then_some(status));
            }
        }
        let commits = self.autocommit || chance(&mut self.rng, 90);
        let xid = Shared::next(&self.shared.ids);
        let two_phases = !self.autocommit && chance(&mut self.rng, 25);
        self.end(session, commits.then_some(two_phases.then_some(xid)), None)
    }

    fn single(&mut self, session: &mut Session<'_>, list: u64) -> Outcome<()> {
        match self.rng.random_range(0..4) {
            0..=1 => self.snapshot_read(session, list),
            2 => self.append(session, list),
            _ => self.insert(session, list),
        }
    }

    /// Ends the transaction. `commit` is `None` for a rollback, `Some(None)` for a commit in one
    /// phase, `Some(Some(xid))` for a commit in two phases. `dead` is the status of the last
    /// statement if it failed because the environment has died. Fails only if the environment has
    /// died.
    fn end(
        &mut self,
        session: &mut Session<'_>,
        commit: Option<Option<u64>>,
        dead: Option<firn_status>,
    ) -> Outcome<()> {
        let ops = &self.txn.as_ref().expect("begun").ops;
        let first = ops.first().map(|op| op.span.begin);
        let alone = first.filter(|_| self.autocommit);
        let begin = alone.unwrap_or_else(|| self.now());
        let (outcome, status) = match commit {
            Some(two_phases) => match session.commit(two_phases) {
                Ok(()) => (TxnOutcome::Ok, None),
                // The validation failed: another transaction has changed rows of an optimistic
                // table that this transaction has locked, changed or deleted.
                Err(firn_status::FIRN_DEADLOCK) => {
                    let rolled_back = session.rollback().err();
                    (TxnOutcome::Failed, rolled_back)
                }
                Err(status) => {
                    // The outcome of a failed commit is unknown until the next start.
                    let _ = session.rollback();
                    (TxnOutcome::Unknown, is_end(status).then_some(status))
                }
            },
            None => {
                let rolled_back = session.rollback().err();
                (TxnOutcome::Failed, dead.or(rolled_back))
            }
        };
        let end = (outcome != TxnOutcome::Unknown).then(|| self.now());
        // The rollback of a failed transaction releases the transaction's locks, so this span must
        // contain the rollback.
        self.finish(outcome, Some(TimeSpan { begin, end }));
        status.map_or(Ok(()), Err)
    }

    /// Inserts the first rows of all lists, in one transaction.
    pub(super) fn found(&mut self, server: &Server) {
        let mut session = server.session(self.shared.level);
        self.begin();
        self.autocommit = false;
        for list in self.shared.lists.all() {
            for _ in 0..ROWS {
                self.insert(&mut session, list)
                    .expect("nobody else is there");
            }
        }
        self.end(&mut session, Some(None), None)
            .expect("nobody else is there");
    }

    /// Reads each list in a transaction of its own: first each list with a plain read, then each
    /// with a locking read.
    pub(super) fn look(&mut self, server: &Server) {
        use firn_read_mode::{FIRN_READ_LOCK_EXCLUSIVE, FIRN_READ_SNAPSHOT};
        let mut session = server.session(self.shared.level);
        self.autocommit = true;
        for mode in [FIRN_READ_SNAPSHOT, FIRN_READ_LOCK_EXCLUSIVE] {
            for list in self.shared.lists.all() {
                self.begin();
                let read = self.read(&mut session, list, (0, POS_MAX), mode, firn_wait::FIRN_WAIT);
                read.unwrap_or_else(|status| panic!("client {} reads: {status:?}", self.number));
                self.end(&mut session, Some(None), None)
                    .expect("nothing was written");
            }
        }
    }
}
