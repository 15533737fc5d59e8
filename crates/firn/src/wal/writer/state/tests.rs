use super::super::super::Record;
use super::super::super::commit_waiter::{CommitWaiter, Committer, Parker, WakeList, WakeReason};
use super::*;
use crate::base::work_count::counted;
use crate::env::{Env, MemEnv};
use std::path::Path;

fn state(slots: usize) -> WalState {
    let file = MemEnv::new().open_log(Path::new("/000001.wal"), true, true);
    let segment = Arc::new(Segment {
        id: 1,
        size: 1 << 20,
        unit: crate::env::BLOCK,
        file: file.unwrap(),
        reserve: false,
    });
    let opts = WalOptions {
        syncs_in_flight: slots,
        ..WalOptions::default()
    };
    WalState::new(segment, LogEnd::default(), BTreeMap::new(), &opts)
}

/// Appends a record and puts a committer that waits for it on the list of waiters.
fn wait(state: &mut WalState) {
    append(state);
    state.waiters.push(CommitWaiter {
        lsn: state.appended,
        durable: true,
        committer: Committer::Asleep(Parker::current()),
    });
}

fn append(state: &mut WalState) {
    let record = Record::Rollback { xid: b"x" };
    record.encode(state.open_group(1));
    state.appended += record.encoded_len() as u64;
}

/// Calls `collect_woken` and returns the reasons for which it would wake committers. No thread is
/// woken.
fn woken(state: &mut WalState) -> Vec<WakeReason> {
    let mut woken = WakeList::new();
    state.collect_woken(&mut woken);
    woken.signals()
}

#[test]
fn the_first_writes_at_once_and_later_ones_need_company() {
    let mut state = state(3);
    append(&mut state);
    assert!(state.may_lead(1), "nothing is being written");
    let first = state.seal(true);
    append(&mut state);
    assert!(state.may_lead(1), "one waits, one is being written");
    let second = state.seal(true);
    append(&mut state);
    assert!(!state.may_lead(1), "one waits, two are being written");
    wait(&mut state);
    assert!(state.may_lead(1), "two wait");
    let third = state.seal(true);
    wait(&mut state);
    wait(&mut state);
    assert!(!state.may_lead(9), "no slot is free");
    assert_eq!(woken(&mut state), []);
    // The committer of the third group still waits, because the first two groups are not durable
    // yet.
    state.written(third);
    assert_eq!(
        woken(&mut state),
        [],
        "two wait for the open group, three for the others"
    );
    wait(&mut state);
    assert_eq!(woken(&mut state), [WakeReason::Lead]);
    assert!(!state.may_lead(9), "the slot is held for the leader");
    state.written(first);
    assert_eq!(
        woken(&mut state),
        [],
        "two wait for the open group, one for a write, and a leader is called"
    );
    state.written(second);
    assert_eq!(woken(&mut state), [WakeReason::Done, WakeReason::Lead]);
}

/// Groups of a busy log double: each is as large as all that are under way.
#[test]
fn a_group_is_as_large_as_those_under_way() {
    let mut state = state(4);
    let mut sizes = Vec::new();
    let mut size = 0;
    for _ in 0..64 {
        append(&mut state);
        size += 1;
        if state.may_lead(1) {
            state.seal(true);
            sizes.push(std::mem::take(&mut size));
        } else {
            state.waiters.push(CommitWaiter {
                lsn: state.appended,
                durable: true,
                committer: Committer::Asleep(Parker::current()),
            });
        }
    }
    assert_eq!(sizes, [1, 1, 2, 4]);
}

/// A lone committer that found too few others to lead is not forgotten: at the end of a write, a
/// leader is chosen again.
#[test]
fn a_single_waiter_leads_when_a_write_has_ended() {
    let mut state = state(4);
    append(&mut state);
    let first = state.seal(true);
    append(&mut state);
    let second = state.seal(true);
    wait(&mut state);
    assert_eq!(woken(&mut state), []);
    state.written(second);
    assert_eq!(woken(&mut state), [WakeReason::Lead]);
    state.called -= 1;
    assert_eq!(state.seal(true).header.known_synced, 0);
    state.written(first);
    assert_eq!(state.progress.durable().group, 2);
}

#[test]
fn a_failure_wakes_all_but_the_durable() {
    let mut state = state(2);
    wait(&mut state);
    let first = state.seal(true);
    wait(&mut state);
    wait(&mut state);
    state.written(first);
    state.failed = true;
    let mut signals = woken(&mut state);
    signals.sort_by_key(|s| *s as u8);
    assert_eq!(
        signals,
        [WakeReason::Done, WakeReason::Failed, WakeReason::Failed]
    );
    assert!(state.waiters.is_empty());
}

/// The work of a commit and of the end of a write does not grow with the committers that wait.
#[test]
fn ten_thousand_waiters_are_not_visited_one_by_one() {
    let work = |waiters: u64| {
        let mut state = state(2);
        append(&mut state);
        let first = state.seal(true);
        (0..waiters).for_each(|_| wait(&mut state));
        let (_, commit) = counted(|| {
            state.may_lead(1);
            state.open_wanted_durable();
            wait(&mut state);
        });
        state.written(first);
        let (reasons, end) = counted(|| woken(&mut state));
        assert_eq!(reasons, [WakeReason::Lead]);
        commit.waiters + end.waiters
    };
    assert!(work(10_000) <= work(10) + 100, "{}", work(10_000));
}
