//! Commands on directories without damage.

use super::support::{World, build, firn, json, open, read};
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Names in `dir` that end with `ending`, in order.
fn files(dir: &Path, ending: &str) -> Vec<String> {
    let mut names: Vec<String> = dir
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(ending) || name.starts_with(ending))
        .collect();
    names.sort();
    names
}

#[test]
fn a_sound_directory_is_shown_and_found_sound() {
    let dir = tempfile::tempdir().unwrap();
    let rows = build(dir.path(), 1, true);
    let (code, report) = json(&["inspect", "--files", text(dir.path())]);
    assert_eq!(code, 0, "{report}");
    let table = &report["tables"][0];
    assert_eq!(table["name"], "d/t");
    let indexes = table["indexes"].as_array().unwrap();
    let names: Vec<_> = indexes
        .iter()
        .map(|i| i["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["PRIMARY", "k", "name"]);
    let levels = report["levels"].as_array().unwrap();
    let with_files = |l: &&serde_json::Value| l["files"].as_u64().unwrap() > 0;
    let used: Vec<_> = levels.iter().filter(with_files).collect();
    assert_eq!(used.len(), 2, "L0 and the last level: {levels:?}");
    let sizes: u64 = levels
        .iter()
        .map(|l| l["stored_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(report["stored_bytes"], sizes);
    let all = report["files"].as_array().unwrap();
    let named = all.iter().filter(|file| file["level"].is_null());
    assert_eq!(report["log"]["files"], named.count());
    assert!(report["log"]["files"].as_u64().unwrap() > 0);
    assert_eq!(
        report["files"].as_array().unwrap().len(),
        files(dir.path(), ".sst").len()
    );
    assert_eq!(
        report["log"]["commits_to_replay"], 21,
        "200 changes, and the counters at close"
    );

    let (code, report) = json(&["check", text(dir.path())]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["sound"], true);
    assert_eq!(report["findings"].as_array().unwrap().len(), 0, "{report}");
    assert_eq!(report["rows"], rows.len());

    // The commands have changed nothing.
    let db = open(dir.path()).unwrap();
    assert_eq!(read(&db).unwrap(), rows);
}

#[test]
fn text_for_people_shows_levels_tables_and_a_verdict() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), 2, true);
    let shown = String::from_utf8(firn(["inspect", text(dir.path())]).stdout).unwrap();
    for part in ["L0", "L6", "█", "d/t", "PRIMARY", "ratio"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let shown = String::from_utf8(firn(["check", text(dir.path())]).stdout).unwrap();
    assert!(shown.ends_with("all is well\n"), "{shown}");
}

#[test]
fn a_definition_is_written_as_the_server_gave_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::create(dir.path(), 5);
    world.more_tables(&["d@002b/t_1", "d/p#P#p0", "d/p#P#p1"]);
    world.db.close().unwrap();
    drop(world);
    for (number, table) in ["d+.t_1", "d.p"].into_iter().enumerate() {
        let target = dir.path().join(format!("{number}.frm"));
        let arguments = ["definition", text(dir.path()), table, text(&target)];
        let (code, report) = json(&arguments);
        assert_eq!((code, report["bytes"].as_u64()), (0, Some(5)), "{report}");
        assert_eq!(std::fs::read(&target).unwrap(), b"image");
        assert_eq!(json(&arguments).0, 4, "it is there already");
    }
    for table in ["d.t", "d.other", "p", "d.p0"] {
        let target = dir.path().join("none.frm");
        let (code, report) = json(&["definition", text(dir.path()), table, text(&target)]);
        assert_eq!(code, 4, "{table}: {report}");
        assert!(!target.exists());
    }
}

#[test]
fn a_crash_leaves_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let rows = build(dir.path(), 3, false);
    let (code, report) = json(&["check", text(dir.path())]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["rows"], rows.len());
}

#[test]
fn files_are_dumped() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), 4, true);
    let mut entries = 0;
    for name in files(dir.path(), ".sst") {
        let file = dir.path().join(name);
        let arguments = [
            "dump",
            "sst",
            text(&file),
            "--blocks",
            "--entries",
            "--values",
            "--limit",
            "100000",
        ];
        let (code, report) = json(&arguments);
        assert_eq!(code, 0, "{report}");
        let listed = report["listed"].as_array().unwrap();
        assert_eq!(report["entries"], listed.len());
        let keys: Vec<_> = listed.iter().map(|e| e["key"].as_str().unwrap()).collect();
        assert!(keys.is_sorted());
        let in_blocks = report["blocks"].as_array().unwrap().iter();
        let in_blocks: u64 = in_blocks.map(|b| b["entries"].as_u64().unwrap()).sum();
        assert_eq!(report["entries"], in_blocks);
        entries += listed.len();
    }
    assert!(entries > 1000, "{entries}");
    let mut commits = 0;
    for name in files(dir.path(), ".wal") {
        let file = dir.path().join(name);
        let (code, report) = json(&["dump", "wal", "--entries", text(&file)]);
        assert_eq!(code, 0, "{report}");
        for piece in report["pieces"].as_array().unwrap() {
            let records = piece["group"]["records"].as_array();
            let records = records.into_iter().flatten();
            for record in records.filter(|r| r["kind"] == "commit") {
                assert_eq!(
                    record["changes"],
                    record["entries"].as_array().map_or(0, Vec::len)
                );
                commits += 1;
            }
        }
    }
    assert!(commits >= 20, "{commits}");
    for name in files(dir.path(), "MANIFEST-") {
        let file = dir.path().join(name);
        let (code, report) = json(&["dump", "manifest", text(&file)]);
        assert_eq!(code, 0, "{report}");
        assert!(!report["edits"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::create(dir.path(), 5);
    let target = dir.path().join("target");
    for arguments in [
        vec!["inspect", text(dir.path())],
        vec!["check", text(dir.path())],
        vec!["repair", text(dir.path()), text(&target)],
    ] {
        let (code, report) = json(&arguments);
        assert_eq!(code, 3, "{arguments:?}: {report}");
        assert!(report["error"].as_str().unwrap().contains("server"));
    }
    world.db.close().unwrap();
}

#[test]
fn what_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    for path in [dir.path(), &nowhere] {
        let (code, report) = json(&["check", text(path)]);
        assert_eq!(code, 4, "{report}");
    }
    assert_eq!(firn(["check"]).status.code(), Some(2));
    let (code, report) = json(&["check"]);
    let what = report["error"].as_str().unwrap();
    assert_eq!((code, what.contains("required")), (2, true), "{report}");
    assert!(!nowhere.exists());
    assert_eq!(
        dir.path().read_dir().unwrap().count(),
        0,
        "no lock file is left"
    );
}

#[test]
fn the_servers_directory_will_do() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("#firn");
    let rows = build(&inner, 6, true);
    let (code, report) = json(&["check", text(dir.path())]);
    assert_eq!((code, &report["rows"]), (0, &rows.len().into()));
}

#[test]
fn repairing_a_sound_directory_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let rows = build(&from, 7, true);
    let (code, report) = json(&["repair", text(&from), text(&to)]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["complete"], true);
    assert_eq!(report["tables"]["d/t"], rows.len());
    assert_eq!(report["index_entries_removed"], 0);
    assert_eq!(report["index_entries_added"], 0);
    let (code, checked) = json(&["check", text(&to)]);
    assert_eq!(code, 0, "{checked}");
    let db = open(&to).unwrap();
    assert_eq!(read(&db).unwrap(), rows);
    db.close().unwrap();
    // A repair never writes into a directory that has any file.
    let (code, report) = json(&["repair", text(&from), text(&to)]);
    assert_eq!(code, 4, "{report}");
}

#[test]
fn files_that_a_stop_leaves_are_one_note() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), 3, true);
    let tree = files(dir.path(), ".sst");
    for id in 5000..5300 {
        std::fs::write(dir.path().join(format!("{id:010}.sst")), b"x").unwrap();
    }
    let check = || {
        let (code, report) = json(&["check", text(dir.path())]);
        let findings = report["findings"].as_array().unwrap().clone();
        let notes = findings.into_iter().filter(|f| f["severity"] == "note");
        let notes: Vec<String> = notes
            .map(|note| note["what"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(notes.len(), 1, "{report}");
        let others = report["findings"].as_array().unwrap().len() - 1;
        (code, others, notes[0].clone())
    };
    let (code, others, note) = check();
    assert_eq!((code, others), (0, 0));
    assert!(
        note.contains("300 SSTs") && note.contains("0000005000.sst"),
        "{note}"
    );
    assert!(
        note.ends_with("later, step by step") && note.len() < 250,
        "{note}"
    );
    // An open deletes nothing if files of the tree are missing.
    std::fs::remove_file(dir.path().join(&tree[0])).unwrap();
    let (code, _, note) = check();
    assert!(code == 1 && note.contains("they stay"), "{note}");
}

/// Files that the tree no longer has and that wait for their deletion do not make a repair doubt
/// the manifest.
#[test]
fn a_repair_trusts_a_manifest_whose_removed_files_are_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let rows = build(&from, 8, true);
    // The open flushes the log, so these files are newer than the manifest.
    let db = open(&from).unwrap();
    let saved = dir.path().join("saved");
    std::fs::create_dir(&saved).unwrap();
    for name in files(&from, ".sst") {
        std::fs::copy(from.join(&name), saved.join(&name)).unwrap();
    }
    db.compact_all().unwrap();
    db.close().unwrap();
    drop(db);
    let mut removed = 0;
    for name in files(&saved, ".sst") {
        if !from.join(&name).exists() {
            std::fs::copy(saved.join(&name), from.join(&name)).unwrap();
            removed += 1;
        }
    }
    assert!(removed > 0);
    for name in files(&from, ".wal") {
        std::fs::remove_file(from.join(name)).unwrap();
    }
    let (_, report) = json(&["repair", text(&from), text(&to)]);
    assert!(!report["lost"].as_array().unwrap().is_empty(), "{report}");
    let notes = report["notes"].to_string();
    assert!(!notes.contains("the manifest is damaged"), "{report}");
    assert_eq!(read(&open(&to).unwrap()).unwrap(), rows);
}
