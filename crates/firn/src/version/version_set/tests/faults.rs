//! Cuts the power at every sync and lets every call fail. After a reopen the tree must be the one
//! of the last acknowledged edit, or the one of the edit in progress, and every file that it names
//! must be intact.

use super::*;
use crate::env::fault::{CallClass, Errno, Fault, FaultEnv};
use crate::env::mem::MemEnv;

const DIR: &str = "/db";
/// The content of a tree that a reopen must restore. The next file id and the next run number are
/// not compared, because a reopen may raise them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    files: Vec<(u8, u64, u64)>,
    counters: BTreeMap<u64, CounterValue>,
    numbers: (u64, Seqno),
}

fn tree(state: &ManifestState) -> Tree {
    let files = state.files.iter();
    Tree {
        files: files.map(|(&id, p)| (p.level, p.run, id)).collect(),
        counters: state.counters.clone(),
        numbers: (state.log_number, state.last_seqno),
    }
}

fn content(id: u64) -> Vec<u8> {
    format!("content of file {id}").repeat(20).into_bytes()
}

/// The trees that a reopen may find after a sequence of edits was interrupted.
struct Script {
    acknowledged: Tree,
    /// The tree with the edit whose outcome is unknown, if there is one.
    under_way: Option<Tree>,
    error: Option<Error>,
}

impl Script {
    fn new(set: &VersionSet) -> Self {
        Self {
            acknowledged: tree(&set.inner.lock().state),
            under_way: None,
            error: None,
        }
    }

    fn allows(&self, found: &Tree) -> bool {
        *found == self.acknowledged || Some(found) == self.under_way.as_ref()
    }

    fn step(&mut self, set: &VersionSet, edit: Edit) -> bool {
        let mut state = set.inner.lock().state.clone();
        state.apply(&edit);
        let next = tree(&state);
        match set.apply(edit) {
            Ok(_) => {
                self.acknowledged = next;
                self.under_way = None;
                assert_eq!(tree(&set.inner.lock().state), self.acknowledged);
                // A failed deletion is no failure: the next call or the next open retries it.
                let _ = set.delete_obsolete();
                true
            }
            Err(error) => {
                self.under_way = Some(next);
                self.error = Some(error);
                false
            }
        }
    }
}

fn new_file(set: &VersionSet, from: u8) -> Result<FileMeta> {
    let id = set.new_file_id();
    let mut out = set.source().store().create(id)?;
    out.append(&content(id))?;
    out.sync()?;
    Ok(file(id, &[0, 0, 0, 1, from], &[0, 0, 0, 1, from + 9]))
}

/// Applies edits of flushes, a merge, a move and numbers, until one fails.
fn play(set: &VersionSet, script: &mut Script) -> Result<()> {
    for round in 1..4u64 {
        for part in [10, 20] {
            let run = set.new_run_number();
            let flush = Edit {
                added: vec![(0, run, new_file(set, part)?)],
                log_number: Some(round),
                last_seqno: Some(round * 10),
                counters: vec![(u64::from(part), round.into())],
                ..Edit::default()
            };
            if !script.step(set, flush) {
                return Ok(());
            }
        }
        let version = set.current();
        let upper = version.files().filter(|(level, _)| *level < 6);
        let lower: Vec<_> = version.files().filter(|(level, _)| *level == 6).collect();
        let mut merge = Edit::default();
        for (level, file) in upper.chain(lower) {
            merge.removed.push((level, file.file_id));
        }
        merge.added = vec![(6, 0, new_file(set, 10)?), (6, 0, new_file(set, 30)?)];
        if !script.step(set, merge) {
            return Ok(());
        }
        if round != 2 {
            // If it fails, the script goes on, or its next edit fails.
            let _ = set.rewrite_manifest();
        }
        let version = set.current();
        let (level, moved) = version.files().last().unwrap();
        let moves = Edit {
            removed: vec![(level, moved.file_id)],
            added: vec![(4, 0, FileMeta::clone(moved.meta()))],
            ..Edit::default()
        };
        if !script.step(set, moves) {
            return Ok(());
        }
    }
    Ok(())
}

fn try_open(env: Arc<dyn Env>) -> Result<VersionSet> {
    env.create_dir_all(Path::new(DIR))?;
    let set = VersionSet::open(context(env, Path::new(DIR)))?;
    set.remove_strays(&HashSet::new());
    Ok(set)
}

/// Reopens the database, checks the tree and returns it.
fn reopened(env: &MemEnv, what: &str) -> (VersionSet, Tree) {
    let set = try_open(Arc::new(env.clone())).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (_, file) in set.current().files() {
        let path = Path::new(DIR).join(format!("{:010}.sst", file.file_id));
        let bytes = env.read(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(bytes, content(file.file_id), "{what}");
    }
    let found = tree(&set.inner.lock().state);
    (set, found)
}

#[test]
fn a_power_cut_at_any_sync_keeps_what_was_acknowledged() {
    let env = MemEnv::new();
    let set = try_open(Arc::new(env.clone())).unwrap();
    play(&set, &mut Script::new(&set)).unwrap();
    let points = env.sync_points();
    assert!(points > 40);
    for point in 1..=points {
        for seed in 0..6 {
            let what = format!("sync {point}, seed {seed}");
            let env = MemEnv::new();
            env.crash_at_sync(point);
            let script = try_open(Arc::new(env.clone())).map(|set| {
                let mut script = Script::new(&set);
                let _ = play(&set, &mut script);
                script
            });
            let survivor = env.crash(seed);
            let (set, found) = reopened(&survivor, &what);
            match script {
                Ok(script) => assert!(script.allows(&found), "{what}: {found:?}"),
                Err(_) => assert!(found.files.is_empty(), "{what}: {found:?}"),
            }
            // The reopened set takes further edits, and these survive the next power cut.
            let mut script = Script::new(&set);
            play(&set, &mut script).unwrap();
            assert!(script.error.is_none(), "{what}");
            let (_, found) = reopened(&survivor.crash(seed + 100), &what);
            assert_eq!(found, script.acknowledged, "{what}");
        }
    }
}

/// Calls `test` once for each call of each class of system calls, with an environment in which this
/// one call fails.
fn each_fault(errno: Errno, sticky: bool, test: impl Fn(&MemEnv, &FaultEnv, &VersionSet, &str)) {
    for class in [
        CallClass::Read,
        CallClass::Write,
        CallClass::Sync,
        CallClass::Create,
        CallClass::Rename,
        CallClass::Remove,
    ] {
        for nth in 1.. {
            let mem = MemEnv::new();
            let env = FaultEnv::new(Arc::new(mem.clone()));
            let set = try_open(Arc::new(env.clone())).unwrap();
            // With this threshold the script makes the manifest rotate, in both ways.
            set.inner.lock().rotate_at = 750;
            let before = env.count(class);
            env.inject(Fault {
                class,
                nth,
                sticky,
                errno,
            });
            let what = format!("{class:?} {nth}, {errno:?}");
            test(&mem, &env, &set, &what);
            if env.count(class) < before + nth {
                break;
            }
        }
    }
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_installed_until_a_restart() {
    each_fault(Errno::Io, false, |mem, _, set, what| {
        let mut script = Script::new(set);
        let written = play(set, &mut script);
        let installed = tree(&set.inner.lock().state);
        assert_eq!(installed, script.acknowledged, "{what}");
        if script.error.is_some() {
            let edit = Edit {
                counters: vec![(99, 1.into())],
                ..Edit::default()
            };
            let again = set.apply(edit).unwrap_err();
            assert_eq!(*again.kind(), ErrorKind::Poisoned, "{what}");
        } else if written.is_ok() {
            // Either the fault did not occur, or it hit a step whose failure does not fail the
            // edit: writing the sync marker, removing a file, or removing the old manifest.
            assert_eq!(installed.numbers, (3, 30), "{what}");
        }
        let (_, found) = reopened(&mem.crash(1), what);
        assert!(script.allows(&found), "{what}: {found:?}");
    });
}

#[test]
fn after_a_kill_the_tree_is_one_that_was_asked_for() {
    for errno in [Errno::Io, Errno::NoSpace] {
        each_fault(errno, true, |mem, _, set, what| {
            let mut script = Script::new(set);
            let _ = play(set, &mut script);
            // The failed edit may be in the manifest. So `delete_obsolete` must delete neither the
            // files that the edit added nor those that it removed.
            let _ = set.delete_obsolete();
            let (_, found) = reopened(&mem.kill(), what);
            assert!(script.allows(&found), "{what}: {found:?}");
        });
    }
}

#[test]
fn with_room_again_a_full_disk_is_forgotten() {
    each_fault(Errno::NoSpace, true, |mem, env, set, what| {
        let mut script = Script::new(set);
        let written = play(set, &mut script);
        assert!(set.ctx.health.check().is_ok(), "{what}");
        if let Some(error) = &script.error {
            assert_eq!(*error.kind(), ErrorKind::NoSpace, "{what}");
        }
        // On a full disk, retried edits must not leave more manifests behind.
        let manifests = || {
            let names = mem.list_dir(Path::new(DIR)).unwrap();
            names.iter().filter(|n| n.starts_with("MANIFEST")).count()
        };
        if script.error.is_some() {
            let try_again = || {
                let edit = Edit {
                    counters: vec![(99, 1.into())],
                    ..Edit::default()
                };
                set.apply(edit).is_err()
            };
            let full = try_again();
            let before = manifests();
            assert_eq!(try_again() && try_again(), full, "{what}");
            assert_eq!(manifests(), before, "{what}");
        }
        env.clear();
        // The failed edit has no effect, and the files that it added are removed.
        if script.error.is_some() || written.is_err() {
            let mut again = Script::new(set);
            play(set, &mut again).unwrap();
            assert!(again.error.is_none(), "{what}");
            set.delete_obsolete().unwrap();
            let (reopened, found) = reopened(&mem.crash(1), what);
            assert_eq!(found, again.acknowledged, "{what}");
            let live = reopened.current().files().count();
            assert_eq!(on_disk(&reopened).len(), live, "{what}");
        }
    });
}
