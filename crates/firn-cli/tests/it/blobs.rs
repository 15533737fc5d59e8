//! Values out of line: how commands show blob files, and which damage of them a check finds.

use super::support::{firn, json, open};
use firn::base::Value;
use firn::base::blob_ref::{self, BLOB_HEADER_LEN};
use firn::db::Db;
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};

const LEN: u64 = 5000;
const SPAN: u64 = LEN + BLOB_HEADER_LEN;

/// Commits one row with an out-of-line value for each number.
fn write(db: &Db, rng: &mut SmallRng, numbers: std::ops::Range<u32>) {
    for n in numbers {
        with_value(db, rng, n).commit().unwrap();
    }
}

/// Returns a transaction that has written a row with an out-of-line value.
fn with_value(db: &Db, rng: &mut SmallRng, n: u32) -> Transaction {
    let key = [1_000_000u32.to_be_bytes(), n.to_be_bytes()].concat();
    let value: Vec<u8> = (0..LEN).map(|_| rng.random()).collect();
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
    txn.lock(&key, LockMode::Exclusive, None).unwrap();
    let blob = txn.write_blob(1, &value).unwrap();
    let mut tail = Vec::new();
    blob_ref::append(&mut tail, &[blob]);
    let value = Value::split(b"row", &tail);
    txn.put_with_blobs(&key, value).unwrap();
    txn
}

fn blob_files(dir: &Path) -> Vec<PathBuf> {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|e| e == "blob"))
        .collect();
    files.sort();
    files
}

/// The findings, without the one that says that the rows belong to no table.
fn findings(report: &serde_json::Value) -> Vec<&serde_json::Value> {
    let all = report["findings"].as_array().unwrap().iter();
    all.filter(|finding| finding["place"] != "catalog")
        .collect()
}

#[test]
fn blob_files_are_shown_and_each_reference_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let db = open(dir.path()).unwrap();
    write(&db, &mut rng, 0..30);
    write(&db, &mut rng, 0..10);
    db.compact_all().unwrap();
    // These values are in the log and in no SST.
    write(&db, &mut rng, 30..35);
    // Drop the database without a close, as a kill leaves it: zeros stand behind the last value.
    drop(db);

    let (code, report) = json(&["inspect", "--files", path]);
    assert_eq!(code, 0, "{report}");
    let blobs = &report["blobs"];
    let number = |name: &str| blobs[name].as_u64().unwrap();
    assert_eq!(number("files") as usize, blob_files(dir.path()).len());
    assert_eq!(
        (number("references"), number("live_bytes")),
        (35, 35 * SPAN)
    );
    assert!(number("stored_bytes") > 45 * SPAN, "{blobs}");
    let garbage = 1.0 - (35 * SPAN) as f64 / number("stored_bytes") as f64;
    let shown = blobs["garbage"].as_f64().unwrap();
    assert!((shown - garbage).abs() < 1e-9, "{shown}, not {garbage}");
    let listed = report["blob_files"].as_array().unwrap();
    assert_eq!(listed.len() as u64, number("files"));
    let of_all: u64 = listed
        .iter()
        .map(|f| f["live_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(of_all, 35 * SPAN);
    let text = String::from_utf8(firn(["inspect", path]).stdout).unwrap();
    assert!(text.contains("35 references"), "{text}");
    let (code, report) = json(&["check", path]);
    assert_eq!((code, findings(&report).len()), (0, 0), "{report}");

    let dumped = blob_files(dir.path()).into_iter().map(|file| {
        let (code, report) = json(&["dump", "blob", file.to_str().unwrap()]);
        assert_eq!(code, 0, "{report}");
        let values = report["listed"].as_array().unwrap();
        assert!(values.iter().all(|value| value["value_bytes"] == LEN));
        let counts = [&report["blobs"], &report["value_bytes"]];
        assert_eq!(values.len() as u64, counts[0].as_u64().unwrap());
        assert_eq!(counts[1].as_u64().unwrap(), LEN * values.len() as u64);
        values.len()
    });
    assert_eq!(dumped.sum::<usize>(), 45);
    let text = String::from_utf8(
        firn(["dump", "blob", blob_files(dir.path())[0].to_str().unwrap()]).stdout,
    )
    .unwrap();
    assert!(
        text.contains(&LEN.to_string()) || text.contains("4.9 KiB"),
        "{text}"
    );

    // A blob file that nothing refers to is no damage, and the next start removes it.
    let file = &blob_files(dir.path())[0];
    let stray = dir.path().join("0000000999.blob");
    std::fs::copy(file, &stray).unwrap();
    let (code, report) = json(&["check", path]);
    let finding = &findings(&report)[0];
    assert_eq!((code, &report["sound"]), (0, &true.into()), "{report}");
    assert_eq!(finding["severity"], "warning");
    assert_eq!(finding["place"], "0000000999.blob");
    assert!(finding["what"].as_str().unwrap().contains("removes it"));

    // Cut the file before some of its values. The check finds each of them, although no row is
    // read.
    let whole = std::fs::read(file).unwrap();
    std::fs::write(file, &whole[..64 + 20 * SPAN as usize - 1]).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    let (code, report) = json(&["check", "--files-only", path]);
    assert_eq!((code, &report["sound"]), (1, &false.into()), "{report}");
    let damage: Vec<u64> = findings(&report)
        .iter()
        .filter(|finding| finding["severity"] == "damage")
        .map(|finding| {
            assert_eq!(finding["place"], name);
            finding["offset"].as_u64().unwrap()
        })
        .collect();
    // Lost are the first values of rows 10 to 29, the second values of rows 0 to 9, and five values
    // whose rows are in the log.
    let lost: Vec<u64> = (19..45).map(|n| 64 + n * SPAN).collect();
    let mut sorted = damage.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, lost);

    // While a blob file is missing, a stray one stays.
    std::fs::remove_file(file).unwrap();
    let (code, report) = json(&["check", path]);
    assert_eq!(code, 1, "{report}");
    let found = report["findings"].to_string();
    assert!(found.contains("the file is missing"), "{found}");
    assert!(found.contains("it stays"), "{found}");
    let (_, report) = json(&["inspect", path]);
    assert_eq!(report["blobs"]["missing_files"], 1, "{report}");
    drop(open(dir.path()).unwrap());
    assert!(stray.exists());
    std::fs::write(file, whole).unwrap();
    drop(open(dir.path()).unwrap());
    assert!(!stray.exists());
    assert_eq!(json(&["check", path]).0, 0);
}

#[test]
fn a_damaged_value_of_a_prepared_transaction_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let db = open(dir.path()).unwrap();
    let mut txn = with_value(&db, &mut SmallRng::seed_from_u64(2), 1);
    txn.prepare(b"x").unwrap();
    std::mem::forget(txn);
    drop(db);
    assert_eq!(json(&["check", path]).0, 0);

    let file = &blob_files(dir.path())[0];
    let mut bytes = std::fs::read(file).unwrap();
    // Change a byte in the middle of the only value, which ends the file; zeros may follow.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end - LEN as usize / 2] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let (code, report) = json(&["check", path]);
    let mut damage = findings(&report).into_iter();
    let finding = damage.find(|finding| finding["severity"] == "damage");
    assert_eq!((code, finding.is_some()), (1, true), "{report}");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_eq!(finding.unwrap()["place"], name, "{report}");
}
