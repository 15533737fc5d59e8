//! Tests of power cuts: all acknowledged records are replayed, and the replayed records are a
//! prefix of the appended ones.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The records that all incarnations have appended. Each record has the next seqno. Its first byte
/// is the number of its incarnation, so that a lost record differs from a later one with the same
/// seqno.
#[derive(Clone, Default)]
struct History {
    /// The number of the incarnation that appended each record. The first element is that of seqno
    /// 1.
    appended: Vec<u8>,
    /// Records up to this seqno were acknowledged as durable.
    acknowledged: u64,
    /// Records up to this seqno were handed to the operating system.
    written: u64,
    /// Records up to this seqno must be replayed after the crash that has just happened.
    expected: u64,
    /// Records up to this seqno need not be replayed any more, as if their memtable had been
    /// flushed.
    flushed: u64,
    /// The segment with which replay begins.
    first: SegmentId,
    runs: u8,
}

/// Appends, writes, syncs, flushes and releases at random, until the work is done or the simulated
/// crash stops it.
fn work(env: &MemEnv, rng: &mut StdRng, history: &mut History, next: (SegmentId, LogEnd)) {
    let opts = WalOptions {
        buffer_max: 20_000,
        ..options()
    };
    history.runs += 1;
    let Ok(wal) = open(env, opts, next.0, next.1) else {
        return;
    };
    // Opening the log has synced the old segments. Before that, replayed records may have been in
    // the page cache only.
    history.acknowledged = history.appended.len() as u64;
    let mut lsns: Vec<(Lsn, u64)> = Vec::new();
    for _ in 0..40 {
        let len = [10, 200, 500, 5000, 30_000][rng.random_range(0..5)];
        let mut bytes = vec![rng.random(); rng.random_range(1..len)];
        bytes[0] = history.runs;
        let last = history.appended.len() as u64;
        let seqnos: Vec<u64> = (1..rng.random_range(2..4)).map(|n| last + n).collect();
        let group: Vec<_> = seqnos.iter().map(|&s| batch(s, &bytes)).collect();
        let asked = [0, group.len() * bytes.len()][rng.random_range(0..2)];
        let room_ahead = wal.prepare_room(asked, OutcomeRoom::Leave);
        let appended = wal.append(&group, OutcomeRoom::Leave);
        drop(room_ahead);
        let Ok(appended) = appended else {
            return;
        };
        history.appended.extend(seqnos.iter().map(|_| bytes[0]));
        lsns.push((appended.lsn, history.appended.len() as u64));
        let result = match rng.random_range(0..7) {
            0 => wal.sync_to(appended.lsn),
            1..5 => wal.write_to(appended.lsn),
            5 => wal.sync_to(lsns[rng.random_range(0..lsns.len())].0),
            _ => Ok(()),
        };
        let durable = wal.durable_lsn();
        if let Some((_, seqno)) = lsns.iter().rev().find(|l| l.0 <= durable) {
            history.acknowledged = *seqno;
        }
        if result.is_err() {
            return;
        }
        if let Some((_, seqno)) = lsns.iter().rev().find(|l| l.0 <= wal.written_lsn()) {
            history.written = *seqno;
        }
        if durable == appended.lsn && rng.random_range(0..5) == 0 {
            history.flushed = history.acknowledged;
            history.first = wal.current_segment();
            if wal.release_before(history.first).is_err() {
                return;
            }
        }
    }
    if rng.random() && wal.close().is_ok() {
        history.acknowledged = history.appended.len() as u64;
    }
}

/// Replays the log, checks the records against the history, and returns the first segment and the
/// log end for the next incarnation.
fn check(env: &MemEnv, history: &mut History, what: &str) -> (SegmentId, LogEnd) {
    let mut found: Vec<(u64, u8)> = Vec::new();
    let end = replay(env, &dir(), history.first, &mut |_, record| {
        let Record::Batch { seqno, batch } = record else {
            panic!("{what}: {record:?}");
        };
        found.push((seqno, batch[0]));
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        found.windows(2).all(|w| w[0].0 + 1 == w[1].0),
        "{what}: {found:?}"
    );
    for &(seqno, run) in &found {
        assert_eq!(history.appended[seqno as usize - 1], run, "{what}: {seqno}");
    }
    let from = found.first().map_or(0, |f| f.0);
    assert!(from <= history.flushed + 1, "{what}: begins with {from}");
    let last = found.last().map_or(0, |f| f.0).max(history.flushed);
    assert!(last >= history.expected, "{what}: ends with {last}");
    history.appended.truncate(last as usize);
    history.written = last;
    (end.max_segment_id_seen + 1, end.log_end())
}

/// Executes the same random work up to each of its sync points in turn and cuts the power there.
/// Then it recovers, works on, crashes again at a random point by a power cut or a kill, and
/// recovers again.
#[test]
fn acknowledged_records_survive_a_power_cut_at_every_sync() {
    for seed in 0..16u64 {
        let disk = || {
            let env = MemEnv::new();
            env.set_log_sectors(seed % 2 == 1);
            env
        };
        let start = |env: &MemEnv| {
            let mut history = History::default();
            let mut rng = StdRng::seed_from_u64(seed);
            work(env, &mut rng, &mut history, (1, LogEnd::default()));
            history
        };
        let whole = disk();
        start(&whole);
        for point in 1..=whole.sync_points() {
            let env = disk();
            env.crash_at_sync(point);
            let mut history = start(&env);
            history.expected = history.acknowledged;
            let mut found = env.crash(seed * 1000 + point);
            let mut rng = StdRng::seed_from_u64(seed ^ point << 20);
            for round in 0..3 {
                let what = format!("seed {seed}, sync {point}, round {round}");
                let next = check(&found, &mut history, &what);
                assert_eq!(check(&found, &mut history, &what), next, "{what}");
                found.crash_at_sync(rng.random_range(1..60));
                work(&found, &mut rng, &mut history, next);
                found = match rng.random_range(0..3) {
                    0 => {
                        history.expected = history.acknowledged.max(history.written);
                        found.kill()
                    }
                    _ => {
                        history.expected = history.acknowledged;
                        found.crash(rng.random())
                    }
                };
            }
            check(&found, &mut history, &format!("seed {seed}, sync {point}"));
        }
    }
}
