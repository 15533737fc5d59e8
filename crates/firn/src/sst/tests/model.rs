use super::*;
use crate::base::key::SEQNO_MAX;
use std::cmp::Reverse;
use std::ops::Bound;

#[test]
fn files_read_back_what_was_written() {
    let mut keyless_moves = 0;
    for seed in 0..6u64 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let keys = [1, 20, 300, 900][seed as usize % 4];
        let value_max = [0, 40, 300][seed as usize % 3];
        let block_size = [1, 256, 1024, 4096][rng.random_range(0..4)];
        let model = random_model(&mut rng, keys, value_max);
        for options in option_sets(block_size) {
            let context = format!("seed {seed}, {options:?}");
            let (bytes, summary) = write(&model, options);
            keyless_moves += check(&model, bytes, &summary, &mut rng, &context);
        }
    }
    assert!(keyless_moves > 100, "{keyless_moves} keyless_moves");
}

/// Checks a file against the model. Returns how many entries the cursor passed by `next_unchecked`.
pub(super) fn check(
    model: &Model,
    bytes: Vec<u8>,
    summary: &SstSummary,
    rng: &mut SmallRng,
    context: &str,
) -> u32 {
    let reader = open(bytes.clone()).unwrap();
    let report = reader.verify().unwrap();
    let deletes = model
        .values()
        .filter(|(kind, ..)| matches!(kind, Kind::Delete | Kind::RangeDelete))
        .count() as u64;
    assert_eq!(report.entries, model.len() as u64, "{context}");
    assert_eq!(
        (summary.entries, summary.deletes),
        (report.entries, deletes),
        "{context}"
    );
    assert_eq!(summary.blobs, blobs_of(model), "{context}");
    assert_eq!(summary.checksum, report.checksum, "{context}");
    assert_eq!(
        summary.checksum,
        crate::base::checksum::xxh3(&bytes),
        "{context}"
    );
    assert_eq!(summary.size, bytes.len() as u64, "{context}");
    assert_eq!(
        summary.smallest,
        model.keys().next().unwrap().0,
        "{context}"
    );
    assert_eq!(
        summary.largest,
        model.keys().next_back().unwrap().0,
        "{context}"
    );
    assert_eq!(
        summary.per_index,
        reader.properties().per_index,
        "{context}"
    );
    let keyless_moves = check_reads(model, &reader, rng, context);
    let on_demand = open_with(bytes, false).unwrap();
    assert!(
        on_demand.memory_bytes() < reader.memory_bytes(),
        "{context}"
    );
    assert_eq!(on_demand.verify().unwrap(), report, "{context}");
    keyless_moves + check_reads(model, &on_demand, rng, context)
}

fn check_reads(model: &Model, reader: &Arc<SstReader>, rng: &mut SmallRng, context: &str) -> u32 {
    assert_eq!(&scan(reader, false).unwrap(), model, "{context}");
    assert_eq!(&scan(reader, true).unwrap(), model, "{context}");
    check_gets(model, reader, rng, context);
    check_moves(model, reader, rng, context)
}

/// A random key of the model, or one near it.
fn some_key(model: &Model, rng: &mut SmallRng) -> Vec<u8> {
    let at = rng.random_range(0..model.len());
    let mut key = model.keys().nth(at).unwrap().0.clone();
    match rng.random_range(0..6) {
        0 => key.push(0),
        1 => drop(key.pop()),
        2 => *key.last_mut().unwrap() = rng.random(),
        3 if rng.random_bool(0.2) => key = vec![[0, 0xff][rng.random_range(0..2)]; 5],
        _ => {}
    }
    key
}

fn some_seqno(rng: &mut SmallRng) -> Seqno {
    [rng.random_range(0..1001), 0, SEQNO_MAX][rng.random_range(0..3)]
}

fn check_gets(model: &Model, reader: &SstReader, rng: &mut SmallRng, context: &str) {
    for _ in 0..300 {
        let (key, seqno) = (some_key(model, rng), some_seqno(rng));
        let expected = model
            .range((key.clone(), Reverse(seqno))..)
            .next()
            .filter(|((found, _), _)| *found == key)
            .map(|((_, seqno), value)| (seqno.0, value.clone()));
        if model
            .range((key.clone(), Reverse(u64::MAX))..=(key.clone(), Reverse(0)))
            .next()
            .is_some()
        {
            assert!(reader.may_contain(&key).unwrap(), "{context}: {key:?}");
        }
        let found = get(reader, &key, seqno).unwrap();
        assert_eq!(found, expected, "{context}: get {key:?} at {seqno}");
    }
}

/// Asks for the number of rows ahead of the entry `from`, and passes some of them by
/// `next_unchecked`, `skip_unchecked` and `next_without_key`, which leaves the key behind. Returns
/// how many it passed.
fn next_unchecked(
    model: &Model,
    iter: &mut SstIter,
    from: &mut ModelKey,
    rng: &mut SmallRng,
    context: &str,
) -> u32 {
    let limit = rng.random_bool(0.5).then(|| some_key(model, rng));
    let snapshot = some_seqno(rng);
    let rows = iter.rows_ahead(limit.as_deref(), snapshot);
    let rows = rng.random_range(0..=rows);
    let mut left = rows;
    while left > 0 {
        let range = (Bound::Excluded(from.clone()), Bound::Unbounded);
        let mut following = model.range(range);
        let mut passed = 1;
        let keyless_moves = rng.random_bool(0.6);
        if keyless_moves {
            let (kind, value) = iter.next_without_key();
            let (_, expected) = following.clone().next().expect("there is a row ahead");
            assert_eq!(kind, expected.0, "{context}");
            assert_eq!(value.head, expected.1.as_slice(), "{context}");
            assert_eq!(value.tail, expected.2.as_slice(), "{context}");
        } else if rng.random_bool(0.3) {
            passed = rng.random_range(1..=left);
            iter.skip_unchecked(passed);
        } else {
            iter.next_unchecked();
        }
        left -= passed;
        let (next, expected) = following
            .nth(passed as usize - 1)
            .expect("there is a row ahead");
        assert_ne!(next.0, from.0, "{context}");
        assert!(expected.0.is_put() && next.1.0 <= snapshot, "{context}");
        assert!(limit.as_ref().is_none_or(|l| next.0 < *l), "{context}");
        if keyless_moves && left > 0 && rng.random_bool(0.5) {
            *from = next.clone();
            continue;
        }
        iter.restore_key();
        let (key, value) = current(iter);
        assert_eq!((&key, &value), (next, expected), "{context}");
        *from = key;
    }
    rows
}

/// Moves one cursor at random and compares each position with the model.
fn check_moves(model: &Model, reader: &Arc<SstReader>, rng: &mut SmallRng, context: &str) -> u32 {
    let mut keyless_moves = 0;
    let first = (vec![], Reverse(u64::MAX));
    let mut iter = reader.iter(ReadClass::Range, rng.random());
    let mut at: Option<ModelKey> = None;
    let mut trace = Vec::new();
    for _ in 0..600 {
        let key = some_key(model, rng);
        let (moved, expected) = match (rng.random_range(0..40), &at) {
            (0, _) => {
                trace.push("first".to_owned());
                (iter.seek_to_first(), model.keys().next())
            }
            (1, _) => {
                trace.push("last".to_owned());
                (iter.seek_to_last(), model.keys().next_back())
            }
            (2..5, _) => {
                trace.push(format!("before {key:?}"));
                let bound = (key.clone(), Reverse(u64::MAX));
                let expected = model.range(first.clone()..bound).next_back();
                (iter.seek_before(&key), expected.map(|(k, _)| k))
            }
            (n, Some(from)) if n >= 8 => {
                if n % 2 == 0 || (n > 30 && trace.len() % 100 < 50) {
                    trace.push("next".to_owned());
                    let range = (Bound::Excluded(from.clone()), Bound::Unbounded);
                    (iter.next(), model.range(range).next().map(|(k, _)| k))
                } else {
                    trace.push("prev".to_owned());
                    let expected = model.range(..from.clone()).next_back();
                    (iter.prev(), expected.map(|(k, _)| k))
                }
            }
            _ => {
                let seqno = some_seqno(rng);
                trace.push(format!("seek {key:?} {seqno}"));
                let expected = model.range((key.clone(), Reverse(seqno))..).next();
                (iter.seek(&key, seqno), expected.map(|(k, _)| k))
            }
        };
        let tail = &trace[trace.len().saturating_sub(5)..];
        assert_eq!(moved.unwrap(), expected.is_some(), "{context}: {tail:?}");
        assert_eq!(iter.valid(), expected.is_some(), "{context}: {tail:?}");
        if let Some(expected) = expected {
            let (key, value) = current(&iter);
            assert_eq!(&key, expected, "{context}: {tail:?}");
            assert_eq!(&value, &model[expected], "{context}: {tail:?}");
        }
        at = expected.cloned();
        if let Some(at) = &mut at {
            keyless_moves += next_unchecked(model, &mut iter, at, rng, context);
        }
    }
    keyless_moves
}

#[test]
fn ranks_count_the_entries_before() {
    let mut rng = SmallRng::seed_from_u64(5);
    let model = random_model(&mut rng, 500, 30);
    for options in option_sets(512) {
        let reader = open(write(&model, options).0).unwrap();
        let total = model.len() as u64;
        for _ in 0..200 {
            let key = some_key(&model, &mut rng);
            let before = model.range(..(key.clone(), Reverse(u64::MAX))).count() as u64;
            let place = reader.locate(&key).unwrap();
            assert_eq!(reader.rank(&place, &key).unwrap(), before);
            let in_block = reader
                .blocks()
                .unwrap()
                .iter()
                .map(|b| b.entries)
                .max()
                .unwrap();
            let (least, most) = place.bounds();
            assert!(least <= before && before <= most && most - least <= in_block);
            let end = some_key(&model, &mut rng);
            let up_to_end = model.range(..(end.clone(), Reverse(u64::MAX))).count() as u64;
            let (from, to) = (
                (&place, &key[..]),
                (&reader.locate(&end).unwrap(), &end[..]),
            );
            let between = up_to_end.saturating_sub(before);
            assert_eq!(reader.count_between(from, to).unwrap(), between);
        }
        let sum: u64 = reader.blocks().unwrap().iter().map(|b| b.entries).sum();
        assert_eq!(sum, total);
    }
}

#[test]
fn split_keys_and_deletions_follow_the_blocks() {
    let mut rng = SmallRng::seed_from_u64(6);
    let model = random_model(&mut rng, 500, 30);
    for (options, pinned) in option_sets(256)
        .into_iter()
        .flat_map(|o| [(o.clone(), true), (o, false)])
    {
        let reader = open_with(write(&model, options).0, pinned).unwrap();
        for _ in 0..200 {
            let (a, b) = (some_key(&model, &mut rng), some_key(&model, &mut rng));
            let (a, b) = (a.clone().min(b.clone()), a.max(b));
            let lower = rng.random_bool(0.8).then_some(&a[..]);
            let upper = rng.random_bool(0.8).then_some(&b[..]);
            let within =
                |key: &[u8]| lower.is_none_or(|l| key >= l) && upper.is_none_or(|u| key < u);
            let is_delete = |kind: &Kind| matches!(kind, Kind::Delete | Kind::RangeDelete);
            let entries = model.iter().filter(|((key, _), _)| within(key));
            let deletes = entries.filter(|(_, (kind, ..))| is_delete(kind)).count() as u64;
            let (least, most) = reader.deletes_within(lower, upper).unwrap();
            assert!(
                least <= deletes && deletes <= most,
                "{least}..{most}, {deletes}"
            );
            let count = rng.random_range(1..20);
            let keys = reader.split_keys(lower, upper, count).unwrap();
            assert!(keys.len() <= count);
            assert!(keys.is_sorted_by(|a, b| a < b));
            assert!(keys.iter().all(|key| lower.is_none_or(|l| &key[..] > l)));
            assert!(keys.iter().all(|key| upper.is_none_or(|u| &key[..] <= u)));
        }
        let blocks = reader.blocks().unwrap().iter().count();
        let all = reader.split_keys(None, None, 8).unwrap();
        assert!(
            all.len() == 8.min(blocks) || !pinned,
            "{} of {blocks}",
            all.len()
        );
        // Eight keys divide the file, so between two neighbours lies about an eighth of the
        // entries.
        let rank = |key: &Vec<u8>| reader.rank(&reader.locate(key).unwrap(), key).unwrap();
        let ranks = all.iter().map(rank);
        let steps: Vec<u64> = ranks
            .collect::<Vec<_>>()
            .windows(2)
            .map(|w| w[1] - w[0])
            .collect();
        let even = model.len() as u64 / 8;
        let tolerable = even / 2..even * 2 + 1;
        assert!(
            blocks < 32 || !pinned || steps.iter().all(|step| tolerable.contains(step)),
            "{steps:?}"
        );
        let deletes = reader.properties().deletes;
        assert_eq!(
            reader.deletes_within(None, None).unwrap(),
            (deletes, deletes)
        );
    }
}
