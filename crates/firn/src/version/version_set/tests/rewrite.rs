//! The manifest that is written beside the one in force.

use super::*;
use crate::env::FaultEnv;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::version::version_set::rewrite;

const DIR: &str = "/rewrite";

fn open_at(env: Arc<dyn Env>) -> VersionSet {
    env.create_dir_all(Path::new(DIR)).unwrap();
    let set = VersionSet::open(context(env, Path::new(DIR))).unwrap();
    set.remove_strays(&HashSet::new());
    set
}

/// Begins a rewrite, as if the manifest were long.
fn begin(set: &VersionSet) -> (u64, rewrite::Snapshot) {
    set.inner.lock().rotate_at = 1;
    set.begin_rewrite().unwrap().unwrap()
}

/// Adds a file and a counter.
fn edit(set: &VersionSet, n: u64) -> Edit {
    Edit {
        counters: vec![(n, n.into())],
        last_seqno: Some(n),
        ..flush(set)
    }
}

fn reopened(env: &MemEnv) -> ManifestState {
    let set = open_at(Arc::new(env.clone()));
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let left = names.iter().filter(|name| name.starts_with("MANIFEST"));
    assert_eq!(left.count(), 1, "{names:?}");
    without_ids(set.state())
}

/// The state without the numbers that each open raises.
fn without_ids(state: ManifestState) -> ManifestState {
    ManifestState {
        next_file_id: 0,
        ..state
    }
}

/// Edits during the rewrite are in both manifests, whenever the power fails.
#[test]
fn edits_go_on_meanwhile_and_survive() {
    for (seed, steps) in (0..12).map(|n| (n / 3, n % 3)) {
        let env = MemEnv::new();
        let set = open_at(Arc::new(env.clone()));
        set.apply(edit(&set, 1)).unwrap();
        let old = set.manifest_id();
        // Edits do not rewrite the manifest by themselves while another thread does.
        let (id, snapshot) = begin(&set);
        assert!(set.begin_rewrite().unwrap().is_none(), "one at a time");
        for n in 2..5 {
            set.apply(edit(&set, n)).unwrap();
        }
        let removed = set.current().l0[1].files[0].file_id;
        let dropped = Edit {
            removed: vec![(0, removed)],
            ..Edit::default()
        };
        set.apply(dropped).unwrap();
        assert_eq!(set.manifest_id(), old);
        if steps > 0 {
            assert!(set.finish_rewrite(id, snapshot).unwrap());
            assert_eq!(set.manifest_id(), id);
            assert!(!set.rewrite_manifest().unwrap(), "it is short");
        }
        if steps > 1 {
            set.apply(edit(&set, 6)).unwrap();
        }
        let state = without_ids(set.state());
        assert_eq!(reopened(&env.crash(seed)), state, "after {steps} steps");
    }
}

/// A rewrite that ends after an edit has written a new manifest changes nothing.
#[test]
fn an_edit_that_must_rewrite_gives_the_other_one_up() {
    let env = MemEnv::new();
    let set = open_at(Arc::new(env.clone()));
    set.apply(edit(&set, 1)).unwrap();
    let (id, snapshot) = begin(&set);
    set.apply(edit(&set, 2)).unwrap();
    set.inner.lock().broken = true;
    set.apply(edit(&set, 3)).unwrap();
    let by_edit = set.manifest_id();
    assert!(by_edit != id);
    assert!(!set.finish_rewrite(id, snapshot).unwrap());
    assert_eq!(set.manifest_id(), by_edit);
    set.apply(edit(&set, 4)).unwrap();
    let state = without_ids(set.state());
    assert_eq!(reopened(&env.crash(1)), state);
}

/// All acknowledged edits survive, for each call that may fail and each power cut after it.
#[test]
fn a_failed_rewrite_loses_nothing() {
    for errno in [Errno::Io, Errno::NoSpace] {
        for class in [
            CallClass::Write,
            CallClass::Sync,
            CallClass::Create,
            CallClass::Rename,
            CallClass::Remove,
        ] {
            for (nth, goes_on) in (2..).map(|n| (n / 2, n % 2 == 1)) {
                let what = format!("{class:?} {nth}, {errno:?}");
                let mem = MemEnv::new();
                let env = FaultEnv::new(Arc::new(mem.clone()));
                let set = open_at(Arc::new(env.clone()));
                set.apply(edit(&set, 1)).unwrap();
                let (id, snapshot) = begin(&set);
                set.apply(edit(&set, 2)).unwrap();
                let before = env.count(class);
                env.inject(Fault {
                    class,
                    nth,
                    sticky: false,
                    errno,
                });
                let _ = set.finish_rewrite(id, snapshot);
                let is_last = env.count(class) < before + nth;
                if goes_on && !is_last && set.ctx.health.check().is_ok() {
                    // The next edit goes into one manifest or the other, or begins another one.
                    set.inner.lock().rotate_at = 1;
                    set.apply(edit(&set, 3)).unwrap();
                }
                let state = without_ids(set.state());
                assert_eq!(reopened(&mem.crash(nth)), state, "{what}");
                if is_last {
                    break;
                }
            }
        }
    }
}
