//! Accounts, the ledger, and their check in one snapshot.

use super::call_failed;
use crate::ensure;
use crate::failure::Failure;
use firn::base::{Result, Value};
use firn::db::Db;
use firn::env::ReadClass;
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ReadPoint, ScanRange, scan_sources};
use firn::txn::Isolation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of accounts.
pub(super) const ACCOUNTS: u32 = 24;
/// Initial balance of each account.
const DEPOSIT: i64 = 1000;
const ACCOUNT_INDEX: u32 = 1_000_000;
const LEDGER_INDEX: u32 = 1_000_001;

pub(super) fn account_key(account: u32) -> Vec<u8> {
    [ACCOUNT_INDEX, account].map(u32::to_be_bytes).concat()
}

pub(super) fn ledger_key(thread: u32, number: u64) -> Vec<u8> {
    let mut key = [LEDGER_INDEX, thread].map(u32::to_be_bytes).concat();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The value of a ledger row: source account, target account, amount.
pub(super) fn ledger_value(from: u32, to: u32, amount: i64) -> Vec<u8> {
    let mut value = [from, to].map(u32::to_be_bytes).concat();
    value.extend_from_slice(&amount.to_be_bytes());
    value
}

pub(super) fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Inserts the accounts with their initial balance unless they exist.
pub(super) fn deposit(db: &Arc<Db>) -> Result<()> {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
    let point = txn.read_point();
    if txn
        .get(&point, &account_key(0), ReadClass::Point, |_, _| ())?
        .is_some()
    {
        return txn.rollback();
    }
    for account in 0..ACCOUNTS {
        txn.put(
            &account_key(account),
            Value::split(&DEPOSIT.to_be_bytes(), &[7; 60]),
        )?;
    }
    txn.commit()
}

/// The accounts and the ledger in one snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Books {
    balances: BTreeMap<Vec<u8>, i64>,
    /// Ledger rows by key (thread, number of the transfer).
    ledger: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Books {
    /// Reads all accounts and the ledger at `point`.
    pub(super) fn read(point: &ReadPoint) -> Result<Self> {
        let mut books = Self {
            balances: BTreeMap::new(),
            ledger: BTreeMap::new(),
        };
        each(point, ACCOUNT_INDEX, |key, value| {
            books.balances.insert(key.to_vec(), number(value.head));
        })?;
        each(point, LEDGER_INDEX, |key, value| {
            books.ledger.insert(key.to_vec(), value.head.to_vec());
        })?;
        Ok(books)
    }

    /// Checks that every balance follows from the ledger.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut expected: BTreeMap<Vec<u8>, i64> =
            (0..ACCOUNTS).map(|a| (account_key(a), DEPOSIT)).collect();
        for row in self.ledger.values() {
            let account = |at: usize| {
                let bytes = row[at..at + 4].try_into().expect("four bytes");
                account_key(u32::from_be_bytes(bytes))
            };
            let amount = number(&row[8..]);
            *expected.get_mut(&account(0)).expect("an account") -= amount;
            *expected.get_mut(&account(4)).expect("an account") += amount;
        }
        let sum: i64 = self.balances.values().sum();
        ensure!(
            sum == DEPOSIT * i64::from(ACCOUNTS),
            "the sum of all balances is {sum}"
        );
        ensure!(
            self.balances == expected,
            "balances {:?} do not follow from the ledger: {expected:?}",
            self.balances
        );
        Ok(())
    }

    /// The number of a thread's transfers. They must be numbered from 1 without a gap.
    pub(super) fn transfers_of(&self, thread: u32) -> Result<u64, Failure> {
        let rows = self
            .ledger
            .range(ledger_key(thread, 0)..ledger_key(thread + 1, 0));
        let mut count = 0;
        for (key, _) in rows {
            count += 1;
            ensure!(
                *key == ledger_key(thread, count),
                "the ledger of thread {thread} has a gap before {key:?}"
            );
        }
        Ok(count)
    }
}

fn each(point: &ReadPoint, index: u32, mut f: impl FnMut(&[u8], Value<'_>)) -> Result<()> {
    let range = ScanRange {
        lower: index.to_be_bytes().to_vec(),
        upper: Some((index + 1).to_be_bytes().to_vec()),
    };
    let merged = MergeIter::new(scan_sources(
        &point.super_version,
        &range,
        ReadClass::Range,
        None,
    ));
    let mut entries = MvccIter::new(merged, ReadAt::snapshot(point.seqno));
    entries.set_bounds(Some(&range.lower), range.upper.as_deref());
    let mut on = entries.first()?;
    while on {
        f(entries.user_key(), entries.value());
        on = entries.next()?;
    }
    Ok(())
}

/// Checks one snapshot after the other until `closed`. Reads each snapshot twice, in two
/// statements, which must show the same. Returns the number of snapshots.
pub(super) fn keep_counting(db: &Arc<Db>, closed: &AtomicBool) -> Result<u64, Failure> {
    let mut counted = 0;
    let mut txn = db.new_transaction(db.new_owner(0));
    while !closed.load(Ordering::Relaxed) {
        txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
        let first = Books::read(&txn.read_point()).map_err(call_failed)?;
        first.check()?;
        txn.begin_statement(2, Isolation::RepeatableRead, 0, false);
        std::thread::yield_now();
        let again = Books::read(&txn.read_point()).map_err(call_failed)?;
        ensure!(
            first == again,
            "a snapshot has changed: {first:?}, then {again:?}"
        );
        txn.commit().map_err(call_failed)?;
        counted += 1;
    }
    Ok(counted)
}
