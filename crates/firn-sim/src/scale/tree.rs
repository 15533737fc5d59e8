//! Costs of the version set and of the picker.

use super::invented::{Invented, SEQNO};
use super::place::Place;
use super::{Budget, Costs, ScalePlan};
use firn::base::event_listener::Silent;
use firn::base::health::Health;
use firn::base::key_range::KeyRange;
use firn::base::options::Options;
use firn::base::{Error, IndexId};
use firn::cache::BlockCache;
use firn::compaction::{
    Backlog, Job, PickerContext, RestGoal, RestOrder, RetiredIndexes, RunningJobs, SpaceTracker,
    pick, pick_within,
};
use firn::env::Env;
use firn::store::FileStore;
use firn::version::{
    DamagedFile, Edit, FileMeta, FileSource, LEVELS, Version, VersionSet, VersionSetContext,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of a flush.
const FLUSHED: u64 = 16;

/// Damaged files of a level.
const DAMAGED: usize = 100;

/// The work that the picker may do to choose a job in L0: it examines each file of L0 several
/// times, with bisections in the base level. The invented trees have about a hundred files in L0.
fn of_pick(plan: ScalePlan) -> Budget {
    Budget {
        files: 256 * plan.log(),
        ..Budget::default()
    }
}

/// The work that the picker may do to choose a job below L0: it examines the files of the job and a
/// fixed number of candidates, each with a few bisections in the next level.
fn of_pick_below(plan: ScalePlan) -> Budget {
    Budget {
        files: 96 * plan.log(),
        ..Budget::default()
    }
}

/// The work that the install of an edit with `files` added and removed files may do: for each file
/// a few bisections, and the copies of the nodes on its paths in the lists of files, of costs, of
/// indexes and of blob files. It writes only the added and removed files to the manifest.
fn of_install(plan: ScalePlan, files: u64) -> Budget {
    Budget {
        files: files * 6 * plan.log() + 64,
        nodes: files * 12 + 16,
        bytes: files * 256,
        ..Budget::default()
    }
}

/// Measures manifest rotation: calls it until the manifest is short enough, as a background thread
/// does.
fn rewrite(versions: &VersionSet, costs: &mut Costs) {
    costs.measure("rewrite the manifest, beside edits", None, || {
        while versions.rewrite_manifest().expect("memory has room") {}
    });
}

/// Opens the version set in `dir`.
pub(super) fn open(env: &Arc<dyn Env>, dir: &Path) -> VersionSet {
    let store = FileStore::new(Arc::clone(env), dir);
    VersionSet::open(VersionSetContext {
        env: Arc::clone(env),
        dir: PathBuf::from(dir),
        source: FileSource::new(store, Arc::new(BlockCache::new(1 << 20))),
        health: Arc::new(Health::default()),
        listener: Arc::new(Silent),
    })
    .expect("the manifest is sound")
}

/// Puts `files` into the tree as one edit.
pub(super) fn add(versions: &VersionSet, files: Vec<(u8, u64, FileMeta)>) {
    let edit = Edit {
        added: files,
        ..Edit::default()
    };
    versions.apply(edit).expect("the edit fits");
}

/// Picks in `version`, beside `running` jobs.
fn pick_in(
    version: &Version,
    options: &Options,
    running: &RunningJobs,
    retired: &RetiredIndexes,
    rest: RestGoal,
) -> Option<Job> {
    pick(&PickerContext {
        version,
        options,
        running,
        retired,
        oldest_read: SEQNO + 1,
        reported: &[],
        rest,
    })
}

/// The edit of `job` with as many outputs as inputs, and its bytes.
fn edit_of(job: &Job, versions: &VersionSet) -> (Edit, u64) {
    let edit = job.edit_without_output().unwrap_or_else(|| {
        let outputs = job.inputs.last().expect("a job has inputs").files.iter();
        let outputs = outputs.map(|file| FileMeta {
            file_id: versions.new_file_id(),
            at_rest: true,
            ..FileMeta::clone(file.meta())
        });
        job.edit(outputs.collect())
    });
    let bytes = edit.encode().len() as u64;
    (edit, bytes)
}

/// Measures an invented tree with all levels, then one at rest.
pub(super) fn measure(plan: ScalePlan, place: &Place, costs: &mut Costs) {
    let indexes = (10..10 + 2 * plan.tables).collect();
    let invented = Invented::new(plan, indexes);
    let (env, dir) = place.empty("all-levels");
    let versions = open(&env, &dir);
    let files = invented.tree(3, || versions.new_file_id());
    for _ in 0..3 {
        versions.new_run_number();
    }
    costs.measure("add all files", None, || add(&versions, files));
    drop(versions);
    let versions = costs.measure("open the manifest", None, || open(&env, &dir));

    let options = Options::default();
    for _ in 0..3 {
        let version = versions.current();
        costs.measure("backlog", Some(Budget::default()), || {
            Backlog::of(&version, &options, &SpaceTracker::default())
        });
        let mut index = 10;
        for _ in 0..4 {
            let bisections = Budget {
                files: 4 * plan.log(),
                ..Budget::default()
            };
            costs.measure("statistics of an index", Some(bisections), || {
                (version.index_stats(index), version.is_plain(index))
            });
            index += plan.tables / 2;
        }
        // A flush.
        let run = versions.new_run_number();
        let added = invented.level(0, FLUSHED, || versions.new_file_id());
        let edit = Edit {
            added: added.into_iter().map(|meta| (0, run, meta)).collect(),
            ..Edit::default()
        };
        let budget = Some(of_install(plan, FLUSHED));
        costs.measure_bytes("install a flush", budget, || {
            let bytes = edit.encode().len() as u64;
            (versions.apply(edit).expect("fits"), bytes)
        });
    }
    let mut running = RunningJobs::default();
    let mut jobs = Vec::new();
    let none = RetiredIndexes::new();
    for _ in 0..8 {
        let version = versions.current();
        let job = costs.measure("pick, L0 due", Some(of_pick(plan)), || {
            pick_in(&version, &options, &running, &none, RestGoal::No)
        });
        let Some(job) = job else { break };
        let ticket = running.begin(&job);
        jobs.push((ticket, job));
        if jobs.len() == 2 {
            let (ticket, job) = jobs.remove(0);
            install(plan, &versions, &job, costs);
            running.end(ticket, &job);
        }
    }
    for _ in 0..4 {
        let version = versions.current();
        let job = costs.measure("pick, idle", Some(of_pick(plan)), || {
            pick_in(&version, &options, &running, &none, RestGoal::WhereItPays)
        });
        if let Some(job) = job {
            install(plan, &versions, &job, costs);
        }
    }

    damaged(plan, &versions.current(), costs);
    without_l0(plan, &invented, place, costs);
    at_rest(plan, &invented, place, costs);
}

/// Measures the backlog of a version with damaged files in each level. It is computed once for a
/// version, so a freeze, which holds the mutex of the commit pipeline, visits no file.
fn damaged(plan: ScalePlan, version: &Version, costs: &mut Costs) {
    let options = Options::default();
    let mut version = version.clone();
    for level in 0..LEVELS as u8 {
        let files: Vec<_> = { version.runs(level).iter() }
            .flat_map(|run| run.files.iter().map(|file| Arc::clone(file.meta())))
            .collect();
        for meta in files.iter().step_by(files.len() / DAMAGED + 1) {
            let one = DamagedFile {
                level,
                meta: Arc::clone(meta),
                error: Error::corruption("a file", 0, "damaged"),
                unreadable: false,
            };
            version = version.with_quarantine(one).expect("a file of the level");
        }
    }
    assert!(version.quarantine().len() > DAMAGED);
    let backlog = || Backlog::of(&version, &options, &SpaceTracker::default());
    // Besides L0's files, a few bisections for each damaged file.
    let budget = Budget {
        files: of_pick(plan).files + 3 * version.quarantine().len() as u64 * plan.log(),
        ..Budget::default()
    };
    let first = costs.measure("backlog over damage, once", Some(budget), backlog);
    let again = costs.measure("backlog over damage", Some(Budget::default()), backlog);
    assert_eq!(first, again);
    costs.measure("pick over damage", None, || {
        let (running, none) = (RunningJobs::default(), RetiredIndexes::new());
        pick_in(&version, &options, &running, &none, RestGoal::No)
    });
}

/// Installs the outputs of `job`.
fn install(plan: ScalePlan, versions: &VersionSet, job: &Job, costs: &mut Costs) {
    let (edit, bytes) = edit_of(job, versions);
    let files = edit.added.len() + edit.removed.len();
    // Record each install by itself: its budget depends on the job, but [`Costs::record`] would
    // keep the budget of the first job for all of them.
    let budget = of_install(plan, files as u64);
    let mut scratch = Costs::default();
    scratch.measure_bytes("install a job", Some(budget), || {
        (versions.apply(edit).expect("the edit fits"), bytes)
    });
    costs.all.append(&mut scratch.all);
}

fn empty(place: &Place, name: &str) -> VersionSet {
    let (env, dir) = place.empty(name);
    open(&env, &dir)
}

/// Picks a job for the table with clustered index `index`.
fn pick_for_table(
    version: &Version,
    options: &Options,
    running: &RunningJobs,
    index: IndexId,
) -> Option<Job> {
    let range = KeyRange {
        smallest: index.to_be_bytes().to_vec(),
        largest: (index + 1).to_be_bytes().to_vec(),
    };
    let order = RestOrder {
        ranges: vec![range],
        until: SEQNO,
    };
    let context = PickerContext {
        version,
        options,
        running,
        retired: &RetiredIndexes::new(),
        oldest_read: SEQNO + 1,
        reported: &[],
        rest: RestGoal::Complete,
    };
    pick_within(&context, &order)
}

/// Picks where only files of the levels below L0 can be moved.
fn without_l0(plan: ScalePlan, invented: &Invented, place: &Place, costs: &mut Costs) {
    let versions = empty(place, "without-l0");
    for (level, count) in [(5, plan.files / 9), (6, plan.files / 9 * 8)] {
        let metas = invented.level(level, count, || versions.new_file_id());
        let files = metas.into_iter().map(|meta| (level, 0, meta));
        add(&versions, files.collect());
    }
    rewrite(&versions, costs);
    let options = Options::default();
    let none = RetiredIndexes::new();
    let mut running = RunningJobs::default();
    for _ in 0..4 {
        let version = versions.current();
        let budget = Some(of_pick_below(plan));
        let job = costs.measure("pick below L0", budget, || {
            pick_in(&version, &options, &running, &none, RestGoal::Complete)
        });
        costs.measure("pick for OPTIMIZE TABLE", budget, || {
            pick_for_table(&version, &options, &running, 10)
        });
        let job = job.expect("files above the last level");
        install(plan, &versions, &job, costs);
        // Beside a job that goes on, the next pick looks elsewhere.
        let job = pick_in(
            &versions.current(),
            &options,
            &running,
            &none,
            RestGoal::Complete,
        );
        running.begin(&job.expect("files above the last level"));
    }
    // A tenth of the tables is dropped. All their files go with one job.
    let dropped = 10..10 + plan.tables / 10;
    let retired: RetiredIndexes = dropped.map(|index| (index + plan.tables, 1)).collect();
    let version = versions.current();
    let running = RunningJobs::default();
    let job = pick_in(&version, &options, &running, &retired, RestGoal::No);
    let files = job.expect("files of dropped indexes").files().count() as u64;
    let budget = Budget {
        files: (files + 2 * u64::from(plan.tables)) * 4 * plan.log(),
        ..Budget::default()
    };
    costs.measure("pick files of dropped tables", Some(budget), || {
        pick_in(&version, &options, &running, &retired, RestGoal::No)
    });
}

/// Measures a pick in a tree whose files in the last level have little garbage each, so that no
/// rewrite pays.
fn at_rest(plan: ScalePlan, invented: &Invented, place: &Place, costs: &mut Costs) {
    let versions = empty(place, "at-rest");
    let metas = invented.level(6, plan.files, || versions.new_file_id());
    let files = metas.into_iter().map(|meta| (6, 0, meta));
    add(&versions, files.collect());
    let version = versions.current();
    let (options, none) = (Options::default(), RetiredIndexes::new());
    let running = RunningJobs::default();
    let job = costs.measure("pick at rest", Some(Budget::default()), || {
        pick_in(&version, &options, &running, &none, RestGoal::WhereItPays)
    });
    assert!(
        job.is_none(),
        "a hundredth of garbage does not pay: {job:?}"
    );
}
