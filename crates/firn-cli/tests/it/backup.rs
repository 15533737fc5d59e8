//! Backups of stopped directories: which objects are sent, what a restore gives back, which damage
//! is found.

use super::support::{Rows, World, firn, json, open, read};
use firn::base::options::{Options, Tier};
use firn::db::{Attached, Db};
use firn::env::{Env, PosixEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory that changes between backups, and a target for its backups.
struct TestDirs {
    _root: tempfile::TempDir,
    source: PathBuf,
    target: PathBuf,
    root: PathBuf,
}

impl TestDirs {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        let place = Self {
            source: path.join("data/#firn"),
            target: path.join("backups"),
            root: path,
            _root: root,
        };
        std::fs::create_dir_all(&place.source).unwrap();
        place
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    fn back_up(&self) -> serde_json::Value {
        let (code, report) = json(&[
            "backup",
            text(&self.target),
            "--from-dir",
            text(&self.data()),
        ]);
        assert_eq!(code, 0, "{report}");
        report
    }

    fn restore(&self, name: &str, more: &[&str]) -> (i32, serde_json::Value) {
        let to = self.root.join(name);
        let args = ["restore", text(&self.target), "--to", text(&to)];
        json(&[&args, more].concat())
    }

    fn expect_no_backup(&self) {
        for args in [&["backups"][..], &["backup", "--verify"]] {
            let (code, error) = json(&[args, &[text(&self.target)]].concat());
            assert_eq!(code, 4, "{error}");
            assert!(error["error"].as_str().unwrap().contains("no backup"));
        }
    }

    fn rows(&self, name: &str) -> Rows {
        read(&open(&self.root.join(name).join("#firn")).unwrap()).unwrap()
    }

    fn objects(&self) -> Vec<PathBuf> {
        let entries = self.target.join("files").read_dir().unwrap();
        let mut objects: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        objects.sort();
        objects
    }
}

/// Creates a database with data on several levels and in the log. The world continues when the
/// directory is opened again.
fn grown(place: &TestDirs) -> World {
    let mut world = World::create(&place.source, 11);
    world.write(3000);
    world.db.compact_all().unwrap();
    world.write(300);
    world.db.flush().unwrap();
    world.write(200);
    world
}

#[test]
fn every_backup_is_whole_and_sends_what_is_new() {
    let place = TestDirs::new();
    let mut world = grown(&place);
    let mut states: Vec<(String, Rows)> = Vec::new();
    let mut sent = Vec::new();
    for round in 0..4 {
        world.db.close().unwrap();
        let rows = world.rows.clone();
        let stopped = world.stopped();
        let report = place.back_up();
        assert_eq!(report["tables"], 1);
        states.push((report["id"].as_str().unwrap().to_owned(), rows));
        sent.push(report["sent_bytes"].as_u64().unwrap());
        world = stopped.started(&place.source);
        world.write(40 * round);
    }
    drop(world);
    // The second backup has the same files as the first but for the log, so little is sent.
    assert!(sent[1] * 2 < sent[0], "{sent:?}");
    let (code, listed) = json(&["backups", text(&place.target)]);
    assert_eq!((code, listed.as_array().unwrap().len()), (0, 4));
    let (code, verified) = json(&["backup", "--verify", text(&place.target)]);
    assert_eq!((code, &verified["sound"]), (0, &true.into()), "{verified}");
    for (id, rows) in &states {
        let (code, report) = place.restore(id, &["--backup", id]);
        assert_eq!(code, 0, "{report}");
        assert!(place.rows(id) == *rows, "{id}");
        let (code, report) = json(&["check", text(&place.root.join(id))]);
        assert_eq!(code, 0, "{report}");
    }

    // The prune keeps two backups. Only files that these two do not name are removed.
    let before = place.objects().len();
    let (code, pruned) = json(&["prune", text(&place.target), "--keep", "2"]);
    assert_eq!(code, 0, "{pruned}");
    assert_eq!(pruned["removed"].as_array().unwrap().len(), 2);
    let removed = pruned["removed_files"].as_u64().unwrap() as usize;
    assert!(removed > 0 && place.objects().len() == before - removed);
    let (code, verified) = json(&["backup", "--verify", text(&place.target)]);
    assert_eq!(
        (code, &verified["files"]),
        (0, &place.objects().len().into())
    );
    let (code, _) = place.restore("gone", &["--backup", &states[0].0]);
    assert_eq!(code, 4);
    let (code, _) = place.restore("latest", &[]);
    assert_eq!(code, 0);
    assert!(place.rows("latest") == states[3].1);
}

#[test]
fn damage_is_found_and_not_restored() {
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    place.back_up();
    let objects = place.objects();
    let last = objects.len() - 1;
    for object in [0, last / 2, last].map(|at| objects[at].clone()) {
        let good = std::fs::read(&object).unwrap();
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 4;
        for bad in [Some(flipped), Some(good[..good.len() - 1].to_vec()), None] {
            match &bad {
                Some(bytes) => std::fs::write(&object, bytes).unwrap(),
                None => std::fs::remove_file(&object).unwrap(),
            }
            let (code, verified) = json(&["backup", "--verify", text(&place.target)]);
            assert_eq!(code, 1, "{verified}");
            let name = object.file_name().unwrap().to_str().unwrap();
            assert!(verified["damaged"][0].as_str().unwrap().contains(name));
            let to = place.root.join("to");
            let (code, error) = place.restore("to", &[]);
            assert_eq!(code, 1, "{error}");
            assert!(!to.join("#firn").exists());
            std::fs::remove_dir_all(&to).unwrap();
        }
        std::fs::write(&object, good).unwrap();
    }
    assert_eq!(place.restore("to", &[]).0, 0);

    // Damage the object that describes the backup.
    let entry = place.target.join("backups").read_dir().unwrap().next();
    let entry = entry.unwrap().unwrap().path();
    let good = std::fs::read_to_string(&entry).unwrap();
    std::fs::write(&entry, good.replacen("\"seqno\":", "\"seqn0\":", 1)).unwrap();
    assert_eq!(json(&["backup", "--verify", text(&place.target)]).0, 1);
    assert_eq!(place.restore("two", &[]).0, 1);
}

#[test]
fn a_source_that_rotted_is_not_backed_up() {
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    let names = place.source.read_dir().unwrap();
    let mut ssts: Vec<PathBuf> = names
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "sst"))
        .collect();
    ssts.sort();
    assert!(ssts.len() > 3, "{ssts:?}");
    let rot = |sst: &Path| {
        let mut bytes = std::fs::read(sst).unwrap();
        bytes[10] ^= 1;
        std::fs::write(sst, bytes).unwrap();
    };
    let back_up = || {
        let line = ["backup", text(&place.target), "--from-dir"];
        json(&[&line[..], &[text(&place.data())]].concat())
    };
    // Damage SSTs without entries of the catalog: a damaged catalog ends the backup before it sends
    // anything.
    let [first, last] = [ssts.len() / 2, ssts.len() / 2 + 1].map(|at| &ssts[at]);
    rot(first);
    rot(last);
    // A backup never reuses the object of a file that rotted.
    for other in [Some(last), None] {
        let (code, error) = back_up();
        assert_eq!(code, 1, "{error}");
        place.expect_no_backup();
        for object in place.objects() {
            let name = object.file_name().unwrap().to_str().unwrap();
            let bytes = std::fs::read(&object).unwrap();
            let sum = format!("{:016x}", firn::base::checksum::xxh3(&bytes));
            assert!(name.ends_with(&sum), "{name}: {sum}");
        }
        if let Some(other) = other {
            rot(other);
        }
    }
    rot(first);
    place.back_up();
    assert_eq!(json(&["backup", "--verify", text(&place.target)]).0, 0);
    assert_eq!(place.restore("to", &[]).0, 0);
}

#[test]
fn a_backup_that_was_cut_short_is_none_and_the_next_one_goes_on() {
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    let first = place.back_up();
    // Remove the object that describes the backup, as if the backup had ended before its last step:
    // no object names the files.
    let entries = place.target.join("backups");
    for entry in entries.read_dir().unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    std::fs::create_dir_all(place.target.join("running")).unwrap();
    std::fs::write(place.target.join("running/20200101T000000Z"), b"").unwrap();
    place.expect_no_backup();
    assert_eq!(place.restore("to", &[]).0, 4);
    let second = place.back_up();
    assert_eq!(second["sent_files"], 0, "{second}");
    assert_eq!(second["files"], first["files"]);
    // The backup whose mark is there may still be under way, so its files must stay.
    let refused = json(&["prune", text(&place.target), "--keep", "1"]);
    assert_eq!(refused.0, 3, "{}", refused.1);
    assert_eq!(
        json(&["prune", text(&place.target), "--keep", "1", "--force"]).0,
        0
    );
    assert_eq!(place.restore("to", &[]).0, 0);
    assert_eq!(json(&["prune", text(&place.target), "--keep", "1"]).0, 0);
    assert_eq!(
        firn(["prune", text(&place.target), "--keep", "0"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn nothing_is_overwritten() {
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    std::fs::create_dir(place.data().join("d")).unwrap();
    std::fs::write(place.data().join("d/t.frm"), b"definition").unwrap();
    std::fs::write(place.data().join("d/db.opt"), b"options").unwrap();
    place.back_up();
    let to = place.root.join("to");
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("diary"), b"mine").unwrap();
    assert_eq!(place.restore("to", &[]).0, 4);
    assert_eq!(to.read_dir().unwrap().count(), 1);

    // The target is now the data directory of a server without FIRN tables.
    std::fs::create_dir(to.join("mysql")).unwrap();
    std::fs::create_dir(to.join("d")).unwrap();
    std::fs::write(to.join("d/t.frm"), b"another").unwrap();
    assert_eq!(place.restore("to", &[]).0, 4);
    assert!(!to.join("#firn").exists());
    std::fs::remove_file(to.join("d/t.frm")).unwrap();
    assert_eq!(place.restore("to", &[]).0, 0);
    assert_eq!(std::fs::read(to.join("d/t.frm")).unwrap(), b"definition");
    assert_eq!(place.restore("to", &[]).0, 4);
}

#[test]
fn a_table_alone_comes_with_what_it_needs() {
    let place = TestDirs::new();
    let mut world = grown(&place);
    let rows = world.rows.clone();
    world.more_tables(&["d/other", "e/other"]);
    world.db.close().unwrap();
    drop(world);
    let whole = place.back_up();
    assert_eq!(whole["tables"], 3);
    let (code, report) = place.restore("one", &["--table", "d.t"]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["tables"], serde_json::json!(["d/t"]));
    assert!(report["bytes"].as_u64() <= whole["bytes"].as_u64());
    assert!(place.rows("one") == rows);
    let db = open(&place.root.join("one/#firn")).unwrap();
    assert_eq!(db.catalog().list("").len(), 1);
    drop(db);
    assert_eq!(place.restore("none", &["--table", "d.nosuch"]).0, 4);
}

/// Rewrites the object that describes the only backup, and names it after its new content.
fn forge(place: &TestDirs, change: &dyn Fn(&mut serde_json::Value)) {
    let entry = place.target.join("backups").read_dir().unwrap().next();
    let entry = entry.unwrap().unwrap().path();
    let mut json = serde_json::from_slice(&std::fs::read(&entry).unwrap()).unwrap();
    change(&mut json);
    let json = serde_json::to_vec(&json).unwrap();
    std::fs::remove_file(&entry).unwrap();
    let name = format!("x-{:016x}.json", firn::base::checksum::xxh3(&json));
    std::fs::write(entry.with_file_name(name), json).unwrap();
}

#[test]
fn a_forged_backup_writes_nowhere_else() {
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    place.back_up();
    forge(&place, &|_| {});
    assert_eq!(place.restore("good", &[]).0, 0);
    let entry = place.target.join("backups").read_dir().unwrap().next();
    let entry = entry.unwrap().unwrap().path();
    let good = std::fs::read(&entry).unwrap();
    let outside = text(&place.root).to_owned() + "/outside.sst";
    type Forgery = Box<dyn Fn(&mut serde_json::Value)>;
    let mut forgeries: Vec<Forgery> = Vec::new();
    for name in [
        "../0000000001.sst",
        "a/0000000001.sst",
        "",
        "..",
        "LOCK",
        &outside,
    ] {
        let name = name.to_owned();
        forgeries.push(Box::new(move |json| {
            json["files"][0]["name"] = name.clone().into()
        }));
    }
    for name in ["../CURRENT", "MANIFEST-1/../../x", "LOCK", &outside] {
        let name = name.to_owned();
        forgeries.push(Box::new(move |json| json["small"][&name] = "00".into()));
    }
    for name in [
        "../d.frm",
        "d/../../e/t.frm",
        "d/t/u.frm",
        "t.frm",
        "/t.frm",
        "d/",
        "./t.frm",
        "mysql/user.frm",
        "#firn/t.frm",
        "d/my.cnf",
        "d/.frm",
        &outside,
    ] {
        let name = name.to_owned();
        forgeries.push(Box::new(move |json| {
            json["definitions"][&name] = "00".into()
        }));
    }
    for (at, forgery) in forgeries.iter().enumerate() {
        forge(&place, forgery);
        let (code, error) = place.restore("to", &[]);
        assert_eq!(code, 1, "{at}: {error}");
        assert!(!place.root.join("to").exists(), "{at}");
        let (code, verified) = json(&["backup", "--verify", text(&place.target)]);
        assert_eq!(code, 1, "{at}: {verified}");
        let forged = place.target.join("backups").read_dir().unwrap().next();
        std::fs::remove_file(forged.unwrap().unwrap().path()).unwrap();
        std::fs::write(&entry, &good).unwrap();
    }
    assert_eq!(place.restore("to", &[]).0, 0);
}

#[test]
fn copies_are_for_their_owner_and_his_group() {
    use std::os::unix::fs::PermissionsExt;
    fn expect_closed(dir: &Path) -> usize {
        let entries = dir.read_dir().unwrap().map(|e| e.unwrap().path());
        let seen = entries.map(|path| {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o027, 0, "{mode:o} {}", path.display());
            1 + if path.is_dir() {
                expect_closed(&path)
            } else {
                0
            }
        });
        seen.sum()
    }
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    std::fs::create_dir(place.data().join("d")).unwrap();
    std::fs::write(place.data().join("d/t.frm"), b"definition").unwrap();
    place.back_up();
    place.restore("to", &[]);
    assert!(expect_closed(&place.target) > 5);
    assert!(expect_closed(&place.root.join("to")) > 5);
}

#[test]
fn verifying_reads_what_lies_in_the_backup_itself() {
    for change in ["definition", "manifest", ".sst", ".blob"] {
        let place = TestDirs::new();
        grown(&place).db.close().unwrap();
        std::fs::create_dir(place.data().join("d")).unwrap();
        std::fs::write(place.data().join("d/t.frm"), b"definition").unwrap();
        place.back_up();
        forge(&place, &|json| match change {
            "definition" => json["definitions"]["d/t.frm"] = "no digits".into(),
            "manifest" => json["small"]["CURRENT"] = "00".into(),
            end => {
                let files = json["files"].as_array_mut().unwrap();
                let is_one =
                    |file: &serde_json::Value| file["name"].as_str().unwrap().ends_with(end);
                files.remove(files.iter().position(is_one).unwrap());
            }
        });
        let (code, verified) = json(&["backup", "--verify", text(&place.target)]);
        assert_eq!(code, 1, "{change}: {verified}");
    }
}

#[test]
fn directories_that_nobody_may_read_are_passed_over() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    let place = TestDirs::new();
    grown(&place).db.close().unwrap();
    for name in ["lost+found", "d"] {
        std::fs::create_dir(place.data().join(name)).unwrap();
    }
    // Root may read every directory, so under root the command runs as user nobody.
    let user = 65534;
    let root = rustix::process::geteuid().is_root();
    let program = place.root.join("firn");
    std::fs::copy(env!("CARGO_BIN_EXE_firn"), &program).unwrap();
    fn give(path: &Path, user: u32) {
        chown(path, Some(user), Some(user)).unwrap();
        if path.is_dir() {
            for entry in path.read_dir().unwrap() {
                give(&entry.unwrap().path(), user);
            }
        }
    }
    if root {
        give(&place.root, user);
    }
    let back_up = || {
        let mut command = std::process::Command::new(&program);
        command.args([
            "backup",
            text(&place.target),
            "--from-dir",
            text(&place.data()),
        ]);
        if root {
            command.uid(user).gid(user);
        }
        command.output().unwrap().status.code()
    };
    let close = |name: &str, mode| {
        let closed = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.data().join(name), closed).unwrap();
    };
    close("lost+found", 0);
    assert_eq!(back_up(), Some(0));
    // The database of a backed-up table must be readable.
    close("d", 0);
    assert_eq!(back_up(), Some(4));
    close("d", 0o700);
    close("lost+found", 0o700);
    assert_eq!(back_up(), Some(0));
}

#[test]
fn tables_are_asked_for_by_the_name_they_have_in_sql() {
    let place = TestDirs::new();
    let mut world = grown(&place);
    world.more_tables(&["d/a@002db", "d@0020d/t@0k"]);
    world.db.close().unwrap();
    drop(world);
    place.back_up();
    for (at, (name, table)) in [
        ("d.a-b", "d/a@002db"),
        ("d d.t\u{e4}", "d@0020d/t@0k"),
        ("d.a@002db", "d/a@002db"),
    ]
    .iter()
    .enumerate()
    {
        let (code, report) = place.restore(&format!("{at}"), &["--table", name]);
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["tables"], serde_json::json!([table]));
    }
    assert_eq!(place.restore("none", &["--table", "d.ab"]).0, 4);
}

#[test]
fn a_directory_with_a_table_set_aside_is_refused() {
    for set_aside in ["d/#sql-backup-2ec-6", "d/#sql-exchange-2ec-6"] {
        let place = TestDirs::new();
        let mut world = grown(&place);
        world.more_tables(&["d/u"]);
        world.db.catalog().rename("d/u", set_aside).unwrap();
        world.db.close().unwrap();
        drop(world);
        let args = ["backup", text(&place.target), "--from-dir"];
        let (code, error) = json(&[&args[..], &[text(&place.data())]].concat());
        assert_eq!(code, 4, "{error}");
        assert!(error["error"].as_str().unwrap().contains(set_aside));
        place.expect_no_backup();
        // Give the table its name back, as the server does when it starts.
        let db = open(&place.source).unwrap();
        db.catalog().rename(set_aside, "d/u").unwrap();
        db.close().unwrap();
        drop(db);
        place.back_up();
    }
}

/// The server may delete an object while a backup copies it, if it does not know of the backup any
/// more. Then another backup is to be taken, and nothing is damaged.
#[test]
fn an_object_that_is_gone_is_no_damage() {
    let place = TestDirs::new();
    let world = grown(&place);
    world.db.close().unwrap();
    drop(world.stopped());
    let store = place.root.join("store");
    std::fs::create_dir(&store).unwrap();
    let url = format!("file://{}", store.display());
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    options.mutable.set_tier(Tier::Cold);
    options.mutable.cold_after_s.store(0, Ordering::Relaxed);
    let remote = firn_tier::open_cold_store(&url, 0, &env, &place.source).unwrap();
    let attached = Attached {
        remote: Some(remote),
        ..Attached::default()
    };
    let db = Db::open_with(env, &place.source, options, None, attached).unwrap();
    while db.tier_step().unwrap() {}
    assert!(db.places().remote.files > 0);
    db.close().unwrap();
    drop(db);

    let mut objects = vec![store.join("sst")];
    while objects.iter().any(|path| path.is_dir()) {
        let below = |path: PathBuf| match path.is_dir() {
            true => path
                .read_dir()
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect(),
            false => vec![path],
        };
        objects = objects.into_iter().flat_map(below).collect();
    }
    let object = &objects[0];
    let bytes = std::fs::read(object).unwrap();
    let back_up = || {
        let data = place.data();
        let args = ["backup", text(&place.target), "--from-dir", text(&data)];
        json(&[&args[..], &["--storage-url", &url]].concat())
    };
    std::fs::remove_file(object).unwrap();
    let (code, error) = back_up();
    assert_eq!(code, 4, "{error}");
    let said = error["error"].as_str().unwrap();
    assert!(said.contains("was deleted during the backup"), "{said}");
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    std::fs::write(object, damaged).unwrap();
    assert_eq!(back_up().0, 1);
    std::fs::write(object, bytes).unwrap();
    assert_eq!(back_up().0, 0);
}
