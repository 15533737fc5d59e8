//! Scans that meet the keys of transactions before and after their validation.

use super::*;
use firn::table::SeekMode;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

/// A scan that goes on longer than this goes on for ever.
const GAPS_MAX: usize = 1000;

fn k_of(record: &[u8]) -> i32 {
    i32::from_le_bytes(record[5..9].try_into().unwrap())
}

/// Reads the rows with a `k` from 25 to 75 through an index, in a new statement.
fn scan(txn: &mut Txn, index: usize, forward: bool) -> Result<Vec<i32>> {
    txn.statement();
    let mut cursor = Cursor::new(Arc::clone(&txn.table));
    let mode = txn
        .table
        .read_mode(&txn.txn, ReadMode::Locking(LockMode::Shared));
    cursor.reset(Some(index), mode, LockWait::Fail)?;
    let image = |k: i32| match index {
        0 => k.to_le_bytes().to_vec(),
        _ => [&[0], &k.to_le_bytes()[..]].concat(),
    };
    let (low, high) = (image(25), image(75));
    let mut buffer = record(0, None);
    let mut on = match forward {
        true => {
            cursor.set_end_range(Some(KeyImage::image(&high)), true)?;
            cursor.seek(
                &mut txn.txn,
                KeyImage::image(&low),
                SeekMode::AtOrAfter,
                &mut buffer,
            )?
        }
        false => cursor.seek(
            &mut txn.txn,
            KeyImage::image(&high),
            SeekMode::LastAtOrBefore,
            &mut buffer,
        )?,
    };
    let mut found = Vec::new();
    while on && (25..=75).contains(&k_of(&buffer)) {
        found.push(k_of(&buffer));
        on = match forward {
            true => cursor.next(&mut txn.txn, &mut buffer)?,
            false => cursor.prev(&mut txn.txn, &mut buffer)?,
        };
    }
    found.sort_unstable();
    Ok(found)
}

fn stop_endless_scans() {
    let mut gaps = 0;
    pause_points::on_this_thread(move |point| {
        gaps += usize::from(point == PausePoint::GapLocked);
        assert!(gaps < GAPS_MAX, "the scan goes on for ever");
    });
}

/// A transaction with the new row 50 among rows of others. As it has inserted as a locking one,
/// too, it is listed with all its writes: a scan also finds the key that it has yet to validate,
/// whose row nobody has locked.
fn with_key_to_validate(db: &Db, table: &Arc<Table>) -> Txn {
    let mut rows = Txn::begin(db, table, Isolation::ReadCommitted);
    for id in [20, 30, 70, 80] {
        rows.insert(id, Some(id)).unwrap();
    }
    rows.commit().unwrap();
    let mut one = Txn::begin(db, table, Isolation::Serializable);
    one.insert(500, Some(500)).unwrap();
    one.isolation = Isolation::ReadCommitted;
    one.insert(50, Some(50)).unwrap();
    one
}

#[test]
fn a_locking_scan_passes_keys_that_are_not_validated_yet() {
    for (index, forward) in [(0, true), (0, false), (1, true), (1, false)] {
        let (_env, db, table) = filled();
        let mut one = with_key_to_validate(&db, &table);
        let mut locker = Txn::begin(&db, &table, Isolation::Serializable);
        stop_endless_scans();
        let found = scan(&mut locker, index, forward).unwrap();
        pause_points::clear();
        assert_eq!(found, [30, 70], "index {index}, forward: {forward}");
        // The scan has read that the row is missing, so it stays missing.
        loses(one.commit());
        let found = scan(&mut locker, index, forward).unwrap();
        assert_eq!(found, [30, 70], "index {index}, forward: {forward}");
        locker.commit().unwrap();
        one.insert(50, Some(50)).unwrap();
        one.commit().unwrap();
    }
}

/// The transaction whose key the scan is about to pass is validated in between: either it finds
/// what the scan has locked, or the scan finds the row or its lock.
#[test]
fn a_scan_that_passes_a_key_meets_its_validation() {
    for (index, forward) in [(0, true), (0, false), (1, true), (1, false)] {
        for in_two_phases in [false, true] {
            let mut outcomes = HashSet::new();
            for nth in 1.. {
                let Some(outcome) = validated_at(nth, index, forward, in_two_phases) else {
                    break;
                };
                outcomes.insert(outcome);
            }
            let all: &[Race] = match in_two_phases {
                false => &[Race::Found, Race::Kept],
                true => &[Race::Met, Race::Kept],
            };
            assert_eq!(outcomes, all.iter().copied().collect());
        }
    }
}

/// The outcome of a validation during a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Race {
    /// The scan finds the new row.
    Found,
    /// The scan finds the lock of the new row.
    Met,
    /// The validation fails.
    Kept,
}

/// Scans, while another transaction is validated at the `nth` point that the scan passes; `None` if
/// it passes fewer ones.
fn validated_at(nth: usize, index: usize, forward: bool, in_two_phases: bool) -> Option<Race> {
    let (_env, db, table) = filled();
    let one = Rc::new(RefCell::new(with_key_to_validate(&db, &table)));
    let mut locker = Txn::begin(&db, &table, Isolation::Serializable);
    let validated = Rc::new(RefCell::new(None));
    let (mut passed, outcome, other) = (0, Rc::clone(&validated), Rc::clone(&one));
    pause_points::on_this_thread(move |point| {
        let here = [
            PausePoint::GapWanted,
            PausePoint::GapLocked,
            PausePoint::LockWanted,
            PausePoint::LockGranted,
        ];
        passed += usize::from(here.contains(&point));
        assert!(passed < GAPS_MAX, "the scan goes on for ever");
        if passed == nth && outcome.borrow().is_none() {
            let mut other = other.borrow_mut();
            let done = match in_two_phases {
                true => other.txn.prepare(b"x"),
                false => other.commit(),
            };
            if done.is_err() {
                other.txn.rollback().unwrap();
            }
            *outcome.borrow_mut() = Some(done.is_ok());
        }
    });
    let first = scan(&mut locker, index, forward);
    pause_points::clear();
    let validated = validated.take()?;
    if validated {
        one.borrow_mut().commit().unwrap();
    }
    let first = match first {
        Err(error) => {
            assert_eq!(*error.kind(), ErrorKind::LockNotAvailable);
            assert!(validated && in_two_phases);
            return Some(Race::Met);
        }
        Ok(first) => first,
    };
    let second = scan(&mut locker, index, forward).unwrap();
    assert_eq!(first, second, "index {index}, forward: {forward}, at {nth}");
    assert_eq!(first.contains(&50), validated, "at {nth}");
    Some(if validated { Race::Found } else { Race::Kept })
}

/// A reader that an index covers locks the value and not the row.
#[test]
fn a_unique_value_that_was_read_is_not_given_away() {
    for deletes in [false, true] {
        for isolation in LEVELS {
            let (_env, db, table) = filled();
            let mut locker = Txn::begin(&db, &table, Isolation::Serializable);
            locker.statement();
            let mut cursor = Cursor::new(Arc::clone(&table));
            let mode = ReadMode::Locking(LockMode::Shared);
            cursor.reset(Some(1), mode, LockWait::Fail).unwrap();
            cursor.set_columns(Some(&[0b10]), true, &[]).unwrap();
            let mut buffer = record(0, None);
            let five = [&[0], &5_i32.to_le_bytes()[..]].concat();
            let key = KeyImage::image(&five);
            assert!(
                cursor
                    .seek(&mut locker.txn, key, SeekMode::Exact, &mut buffer)
                    .unwrap()
            );
            assert_eq!(k_of(&buffer), 5);
            let mut one = Txn::begin(&db, &table, isolation);
            match deletes {
                true => one.delete(5).unwrap(),
                false => one.update(5, Some(55)).unwrap(),
            }
            loses(one.commit());
            locker.commit().unwrap();
            one.update(5, Some(55)).unwrap();
            one.commit().unwrap();
        }
    }
}

/// At READ COMMITTED a statement that has written since it opened its scan meets the entry by which
/// another transaction has moved an own row.
#[test]
fn a_scan_heeds_an_overtaken_row_after_writes_of_its_statement() {
    for writes in [false, true] {
        let (_env, db, table) = filled();
        let mut one = Txn::begin(&db, &table, Isolation::ReadCommitted);
        let mut two = Txn::begin(&db, &table, Isolation::ReadCommitted);
        one.update(1, Some(11)).unwrap();
        two.update(1, Some(12)).unwrap();
        two.commit().unwrap();
        one.statement();
        let mut cursor = Cursor::new(Arc::clone(&table));
        let mode = ReadMode::Locking(LockMode::Exclusive);
        let mode = table.read_mode(&one.txn, mode);
        cursor.reset(Some(1), mode, LockWait::Fail).unwrap();
        let mut buffer = record(0, None);
        let mut on = cursor.first(&mut one.txn, &mut buffer);
        if writes {
            insert(&table, &mut one.txn, 100, Some(100))
                .map(done)
                .unwrap();
        }
        let mut found = Vec::new();
        while let Ok(true) = on {
            found.push(k_of(&buffer));
            on = cursor.next(&mut one.txn, &mut buffer);
        }
        assert_eq!(found, (2..10).chain([11]).collect::<Vec<_>>());
        assert_eq!(*on.unwrap_err().kind(), ErrorKind::Deadlock);
        loses(one.commit());
    }
}
