use super::*;
use crate::base::ErrorKind;
use crate::base::{Kind, Seqno};
use crate::compaction::testing::{Db, Entry, VecIter, entry, user_key};
use crate::compaction::{JobKind, PickerContext, RestGoal, RunningJobs, flush, pick};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

impl Db {
    fn flush(&self, entries: Vec<Entry>, reads: &Snapshots) {
        let mut source = VecIter::new(entries);
        let (files, _) = flush(
            self.context(),
            &mut source,
            reads,
            &RetiredIndexes::new(),
            &AtomicBool::new(false),
        )
        .unwrap();
        self.install_run(files);
    }

    fn pick(&self, reads: &Snapshots) -> Option<Job> {
        pick(&PickerContext {
            version: &self.versions.current(),
            options: &self.options,
            running: &RunningJobs::default(),
            retired: &RetiredIndexes::new(),
            oldest_read: reads.oldest(),
            reported: &[],
            rest: RestGoal::Complete,
        })
    }

    fn run(&self, job: &Job, reads: &Snapshots, cancel: bool) -> Result<(Edit, JobStats)> {
        let version = self.versions.current();
        let cancel = AtomicBool::new(cancel);
        run_job(
            self.context(),
            &version,
            job,
            reads,
            &RetiredIndexes::new(),
            &cancel,
        )
    }

    /// Compacts to the resting state and returns the summed statistics of the jobs.
    fn compact_until_at_rest(&self, reads: &Snapshots) -> JobStats {
        let mut sum = JobStats::default();
        while let Some(job) = self.pick(reads) {
            let (edit, stats) = self.run(&job, reads, false).unwrap();
            self.versions.apply(edit).unwrap();
            drop(job);
            self.versions.delete_obsolete().unwrap();
            sum.entries_in += stats.entries_in;
            sum.entries_out += stats.entries_out;
            sum.tombstones += stats.tombstones;
            sum.shadowed += stats.shadowed;
        }
        sum
    }
}

fn puts(keys: std::ops::Range<u64>, seqno: Seqno) -> Vec<Entry> {
    keys.map(|n| entry(user_key(1, n), seqno + n, Kind::Put))
        .collect()
}

#[test]
fn the_resting_state_holds_the_newest_versions_in_the_last_level() {
    let db = Db::new();
    let mut model: BTreeMap<Vec<u8>, Seqno> = BTreeMap::new();
    let mut rng = StdRng::seed_from_u64(1);
    let mut seqno = 0;
    for _ in 0..6 {
        let mut batch = Vec::new();
        for _ in 0..1500 {
            seqno += 1;
            let key = user_key(1 + rng.random_range(0..2), rng.random_range(0..2000));
            let kind = if rng.random_range(0..4) == 0 {
                Kind::Delete
            } else {
                Kind::Put
            };
            match kind {
                Kind::Delete => model.remove(&key),
                _ => model.insert(key.clone(), seqno),
            };
            batch.push(entry(key, seqno, kind));
        }
        db.flush(batch, &Snapshots::new(seqno, []));
    }
    let stats = db.compact_until_at_rest(&Snapshots::new(seqno, []));
    assert!(stats.tombstones > 0 && stats.shadowed > 0);
    let found: Vec<_> = db
        .scan()
        .into_iter()
        .map(|(k, s, _, wrote)| (k, s, wrote))
        .collect();
    let expected = model
        .into_iter()
        .map(|(k, wrote)| (k, 0, wrote.to_le_bytes()));
    assert_eq!(found, expected.collect::<Vec<_>>());
    let version = db.versions.current();
    assert!(
        version
            .files()
            .all(|(level, f)| level == 6 && f.at_rest && f.max_seqno == 0)
    );
    let on_disk = db.versions.source().store().list().unwrap();
    assert_eq!(on_disk.len(), version.files().count());
}

#[test]
fn snapshots_keep_their_versions() {
    let db = Db::new();
    let reads = Snapshots::new(60_000, [15_000]);
    db.flush(puts(0..500, 10_000), &reads);
    db.flush(puts(0..500, 20_000), &reads);
    db.compact_until_at_rest(&reads);
    let of_one: Vec<Seqno> = db
        .scan()
        .iter()
        .filter(|e| e.0 == user_key(1, 7))
        .map(|e| e.1)
        .collect();
    assert_eq!(of_one, [20_007, 0]);
    let reads = Snapshots::new(60_000, []);
    assert!(db.pick(&reads).is_some(), "the snapshot is gone");
    db.compact_until_at_rest(&reads);
    assert_eq!(db.scan().len(), 500);
}

#[test]
fn a_failed_job_leaves_nothing_behind() {
    let mut db = Db::new();
    db.options.target_file_size = 512 << 10;
    let reads = Snapshots::new(60_000, []);
    db.flush(puts(0..20_000, 1), &reads);
    db.flush(puts(0..20_000, 30_000), &reads);
    let before = db.versions.source().store().list().unwrap();
    let job = db.pick(&reads).unwrap();
    assert_eq!(job.kind, JobKind::Compact);
    let error = db.run(&job, &reads, true).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Interrupted);
    assert_eq!(db.versions.source().store().list().unwrap(), before);

    // With a damaged input the error names the file, and the job leaves no output.
    let (_, damaged) = job.files().last().unwrap();
    let id = damaged.file_id;
    db.damage(id);
    let error = db.run(&job, &reads, false).unwrap_err();
    assert!(
        error.is_corruption() && error.to_string().contains(&id.to_string()),
        "{error}"
    );
    assert_eq!(db.versions.source().store().list().unwrap(), before);
    let after = db.versions.current();
    assert_eq!(after.files().count(), before.len());
}

#[test]
fn a_lost_entry_is_noticed() {
    let file = |entries| crate::version::FileMeta {
        entries,
        ..crate::compaction::testing::meta_of(1, &puts(0..3, 1), 100, false)
    };
    let numbers = JobStats {
        entries_in: 5,
        entries_out: 3,
        shadowed: 2,
        ..JobStats::default()
    };
    assert!(numbers.clone().finish(100, &[file(3)]).is_ok());
    assert!(numbers.clone().finish(100, &[file(2)]).is_err());
    let lost = JobStats {
        entries_in: 6,
        ..numbers
    };
    assert!(lost.clone().finish(100, &[file(3)]).is_err());
}

/// A file of an upper level, over a full last level, that deletes `deleted` and changes other keys.
fn with_deletions(deleted: impl Iterator<Item = u64>) -> (Db, Snapshots) {
    let mut db = Db::new();
    db.options.target_file_size = 8 << 20;
    db.options.base_level_size = 64 << 20;
    let reads = Snapshots::new(1_000_000, []);
    db.flush(puts(0..400_000, 1), &reads);
    db.compact_until_at_rest(&reads);
    let mut entries: BTreeMap<u64, Entry> = (0..5000)
        .map(|n| (n, entry(user_key(1, n), 500_000 + n, Kind::Put)))
        .collect();
    for n in deleted {
        entries.insert(n, entry(user_key(1, n), 600_000 + n, Kind::Delete));
    }
    let mut source = VecIter::new(entries.into_values().collect());
    let (files, _) = flush(
        db.context(),
        &mut source,
        &reads,
        &RetiredIndexes::new(),
        &AtomicBool::new(false),
    )
    .unwrap();
    let added = files.into_iter().map(|meta| (5, 0, meta)).collect();
    let edit = Edit {
        added,
        ..Edit::default()
    };
    db.versions.apply(edit).unwrap();
    (db, reads)
}

#[test]
fn deletions_in_one_place_sink_though_they_are_few_in_the_file() {
    let picked = |db: &Db, reads: &Snapshots| {
        pick(&PickerContext {
            version: &db.versions.current(),
            options: &db.options,
            running: &RunningJobs::default(),
            retired: &RetiredIndexes::new(),
            oldest_read: reads.oldest(),
            reported: &[],
            rest: RestGoal::No,
        })
    };
    // Deletions of every fourth key, scattered: they hold up no scan.
    let (db, reads) = with_deletions((0..5000).step_by(4));
    let version = db.versions.current();
    let upper = &version.levels[4].files;
    assert!(upper.iter().map(|f| f.deletes).sum::<u64>() > 1200);
    assert!(upper.iter().all(|f| f.dense_deletes == 0));
    assert!(picked(&db, &reads).is_none());
    // As many deletions side by side: a scan skips them all before it finds a row.
    let (db, reads) = with_deletions(2000..3250);
    let version = db.versions.current();
    let file = version.levels[4].find(&user_key(1, 2500)).unwrap();
    assert!(file.deletes * 100 < file.entries * 50, "few in the file");
    assert!(file.dense_deletes >= 1000, "{}", file.dense_deletes);
    let reader = file.reader().unwrap();
    assert_eq!(reader.properties().dense_deletes, file.dense_deletes);
    reader.verify().unwrap();
    let job = picked(&db, &reads).expect("the cluster is worth a job");
    assert_eq!(job.reason, crate::compaction::JobReason::Garbage);
    let (edit, stats) = db.run(&job, &reads, false).unwrap();
    assert!(stats.tombstones >= 1000, "{stats:?}");
    db.versions.apply(edit).unwrap();
    assert!(picked(&db, &reads).is_none(), "once is enough");
}
