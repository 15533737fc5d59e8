//! Two hundred damaged directories: each damage is named, each undamaged row is saved.

use super::support::{OUT_OF_LINE, Row, Rows, build, json, open, read};
use firn::base::InternalIterator;
use firn::base::blob_ref::BLOB_HEADER_LEN;
use firn::cache::BlockCache;
use firn::env::{Env, PosixEnv, ReadClass};
use firn::sst::SstReader;
use firn::store::parse_file_name;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Damaged directories of each of the two tests, which run in threads of their own.
const CASES: u64 = 100;

/// A damage of a file.
#[derive(Debug, Clone)]
enum Damage {
    /// The bytes of this range are changed.
    Bytes(Range<u64>),
    /// The file is cut to this length.
    Cut(u64),
    /// The file is removed.
    Deleted,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Damages one file of `dir`.
fn damage(dir: &Path, rng: &mut SmallRng) -> (String, Damage) {
    let mut names: Vec<String> = dir
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        // Damage of the lock file and of the disk reserve loses nothing.
        .filter(|name| name != "LOCK" && !name.ends_with(".reserve"))
        .collect();
    names.sort();
    // Half of the cases damage an SST, although most files are SSTs.
    let sst: bool = rng.random();
    names.retain(|name| name.ends_with(".sst") == sst);
    let name = names[rng.random_range(0..names.len())].clone();
    let path = dir.join(&name);
    let mut bytes = fs::read(&path).unwrap();
    let len = bytes.len() as u64;
    let done = match rng.random_range(0..10) {
        0 => {
            fs::remove_file(&path).unwrap();
            return (name, Damage::Deleted);
        }
        1 => {
            let to = rng.random_range(0..len);
            bytes.truncate(to as usize);
            Damage::Cut(to)
        }
        _ => {
            let from = rng.random_range(0..len);
            let to = (from + rng.random_range(1..200)).min(len);
            for byte in &mut bytes[from as usize..to as usize] {
                *byte ^= rng.random_range(1..=255);
            }
            Damage::Bytes(from..to)
        }
    };
    fs::write(&path, bytes).unwrap();
    (name, done)
}

/// The ids of rows that the damage may have taken or turned back to an older version: rows with any
/// entry in a block of the SST that the damage touches.
fn touched(whole: &Path, name: &str, damage: &Damage) -> BTreeSet<i32> {
    let Some((_, id)) = parse_file_name(name) else {
        return BTreeSet::new();
    };
    let file = PosixEnv::new().open(&whole.join(name)).unwrap();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let reader = SstReader::open(file, id, name.to_owned(), cache).unwrap();
    let mut iter = reader.iter(ReadClass::Verify, false);
    let mut ids = BTreeSet::new();
    let mut start = 0;
    let mut more = iter.seek_to_first().unwrap();
    let data_end = reader.properties().data_bytes;
    for block in reader.blocks().unwrap().iter() {
        let bytes = start..start + block.bytes;
        start = bytes.end;
        let hit = match damage {
            Damage::Deleted => true,
            Damage::Cut(to) => bytes.end > *to,
            Damage::Bytes(range) => range.start < bytes.end && bytes.start < range.end,
        };
        // If a dictionary is damaged, no block of the file can be read.
        let hit = hit || reader_needs(&reader, damage, data_end);
        for _ in 0..block.entries {
            assert!(more);
            let key = iter.key().user_key;
            // The last four bytes of every key of the table are the primary key.
            if hit && u32::from_be_bytes(key[..4].try_into().unwrap()) != 0 {
                let id = u32::from_be_bytes(key[key.len() - 4..].try_into().unwrap());
                ids.insert((id ^ 0x8000_0000) as i32);
            }
            more = iter.next().unwrap();
        }
    }
    assert!(!more);
    ids
}

/// Whether the damage may have hit a dictionary, which lies behind the data.
fn reader_needs(reader: &SstReader, damage: &Damage, data_end: u64) -> bool {
    let dictionaries = reader.dictionary_bytes();
    match damage {
        Damage::Deleted => true,
        Damage::Cut(to) => dictionaries.iter().any(|d| d.end > *to),
        Damage::Bytes(range) => {
            range.end > data_end
                && dictionaries
                    .iter()
                    .any(|d| range.start < d.end && d.start < range.end)
        }
    }
}

struct Case {
    seed: u64,
    whole: PathBuf,
    rows: Rows,
    name: String,
    damage: Damage,
}

impl Case {
    fn context(&self) -> String {
        format!("seed {}: {} {:?}", self.seed, self.name, self.damage)
    }

    /// Checks that `firn check` names the damaged file, or that reads of the directory are right.
    fn check_names_it(&self, dir: &Path) -> bool {
        let (code, report) = json(&["check", dir.to_str().unwrap()]);
        let findings = report["findings"].as_array().unwrap();
        let named = findings.iter().any(|finding| {
            let place = finding["place"].as_str().unwrap_or_default();
            let what = finding["what"].as_str().unwrap_or_default();
            place == self.name || what.contains(&self.name)
        });
        let context = self.context();
        if !named {
            assert_eq!(code, 0, "{context}: damage elsewhere: {report}");
            let db = open(dir).unwrap_or_else(|e| panic!("{context}: sound, but {e}"));
            let differs = read(&db).unwrap() != self.rows;
            assert!(!differs, "{context}: sound, but rows differ");
            db.close().unwrap();
        }
        named
    }

    /// Checks that a repair saves all rows that the damage did not touch, and invents none.
    fn repair_saves_the_rest(&self, dir: &Path, target: &Path) {
        let context = self.context();
        let (code, report) = json(&["repair", dir.to_str().unwrap(), target.to_str().unwrap()]);
        assert!(code == 0 || code == 1, "{context}: {report}");
        let (_, checked) = json(&["check", target.to_str().unwrap()]);
        // An index over text lacks the lost entries until the server rebuilds it, and the notes say
        // so.
        let notes = report["notes"].to_string();
        for finding in checked["findings"].as_array().unwrap() {
            let what = finding["what"].as_str().unwrap();
            let announced = what.starts_with("index name") && notes.contains("index name ");
            assert!(announced, "{context}: repaired, but {finding}\n{report}");
        }
        if report["tables"].as_object().unwrap().is_empty() {
            assert!(
                self.may_take_the_catalog(),
                "{context}: the table is lost: {report}"
            );
            return;
        }
        let db = open(target).unwrap();
        let saved = read(&db).unwrap_or_else(|e| panic!("{context}: {e}"));
        db.close().unwrap();
        if self.name.ends_with(".wal") {
            return self.the_log_is_saved(&saved);
        }
        if self.name.ends_with("CURRENT") || self.name.starts_with("MANIFEST") {
            // The SSTs' own properties are enough to save every row.
            assert!(saved == self.rows, "{context}: {report}");
            return;
        }
        if self.name.ends_with(".blob") {
            return self.the_rest_of_the_rows_is_saved(&saved);
        }
        let touched = touched(&self.whole, &self.name, &self.damage);
        for (id, row) in &self.rows {
            if !touched.contains(id) {
                assert_eq!(saved.get(id), Some(row), "{context}: row {id}: {report}");
            }
        }
        let invented = saved.keys().filter(|id| !self.rows.contains_key(id));
        for id in invented {
            assert!(
                touched.contains(id),
                "{context}: row {id} came back: {report}"
            );
        }
        let gone = self.rows.keys().any(|id| !saved.contains_key(id));
        let named = report["lost"].to_string();
        // If no block of a file can be found, nothing tells whose rows the file had.
        let unknown = named.contains("between the start of the file and its end");
        assert!(
            !gone || unknown || named.contains("d/t."),
            "{context}: no table is named: {report}"
        );
    }

    /// Checks that only out-of-line values that the damage touched are lost: they are empty, and
    /// all else is unchanged.
    fn the_rest_of_the_rows_is_saved(&self, saved: &Rows) {
        assert_eq!(saved.len(), self.rows.len(), "{}", self.context());
        let mut emptied = 0;
        for (id, (k, name, note)) in &self.rows {
            let (saved_k, saved_name, saved_note) = &saved[id];
            let same = (saved_k, saved_name) == (k, name);
            assert!(same, "{}: row {id}", self.context());
            if saved_note != note {
                assert!(
                    saved_note.is_empty() && note.len() >= OUT_OF_LINE,
                    "{}: row {id}: {saved_note} instead of {note}",
                    self.context()
                );
                emptied += 1;
            }
        }
        if let Damage::Bytes(range) = &self.damage {
            let most = (range.end - range.start) / (BLOB_HEADER_LEN + OUT_OF_LINE as u64) + 2;
            assert!(emptied <= most, "{}: {emptied} values", self.context());
        }
    }

    /// Checks that only rows whose changes were in the damaged part of the log are lost or as they
    /// were before. The last 200 changes are in the log alone, ten in each group, and a group takes
    /// at least one block.
    fn the_log_is_saved(&self, saved: &Rows) {
        let differs = |(id, row): &(&i32, &Row)| saved.get(id) != Some(row);
        let differing = self.rows.iter().filter(differs).count();
        let invented = saved.keys().filter(|id| !self.rows.contains_key(id));
        let changed = differing + invented.count();
        let most = match &self.damage {
            // The damaged bytes belong to two groups at most.
            Damage::Bytes(_) => 20,
            Damage::Cut(_) | Damage::Deleted => 200,
        };
        assert!(changed <= most, "{}: {changed} rows", self.context());
    }

    /// Whether the file may have the only copy of the table's definition.
    fn may_take_the_catalog(&self) -> bool {
        self.name.ends_with(".sst") || self.name.ends_with(".wal")
    }
}

#[test]
fn damage_is_named_and_the_rest_is_saved() {
    cases(0);
}

#[test]
fn damage_is_named_and_the_rest_is_saved_again() {
    cases(CASES);
}

fn cases(first: u64) {
    let root = tempfile::tempdir().unwrap();
    let chosen = std::env::var("FIRN_TEST_SEED").ok();
    let chosen: u64 = chosen.map_or(0, |seed| seed.parse().unwrap());
    let first = first + chosen;
    let (mut named, mut blobs) = (0, 0);
    for seed in first..first + CASES {
        let mut rng = SmallRng::seed_from_u64(seed);
        // Twenty cases share a directory, since building one takes longer than all the rest.
        let whole = root.path().join(format!("whole-{}", seed / 20));
        let rows = build_once(&whole, seed / 20);
        let (dir, target) = (root.path().join("damaged"), root.path().join("target"));
        copy(&whole, &dir);
        let (name, damage) = damage(&dir, &mut rng);
        blobs += u32::from(name.ends_with(".blob"));
        let case = Case {
            seed,
            whole,
            rows,
            name,
            damage,
        };
        case.repair_saves_the_rest(&dir, &target);
        named += u64::from(case.check_names_it(&dir));
        fs::remove_dir_all(&dir).unwrap();
        fs::remove_dir_all(&target).unwrap();
    }
    assert!(blobs > 0, "no blob file was damaged");
    assert!(named > CASES / 2, "only {named} of {CASES} had an effect");
}

fn build_once(dir: &Path, seed: u64) -> Rows {
    if !dir.exists() {
        return build(dir, seed, true);
    }
    // The directory is undamaged, so its rows are the expected ones.
    let copy_of = dir.with_extension("read");
    if !copy_of.exists() {
        copy(dir, &copy_of);
    }
    let db = open(&copy_of).unwrap();
    let rows = read(&db).unwrap();
    db.close().unwrap();
    rows
}

#[test]
fn what_a_newer_version_wrote_is_not_called_damage() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    build(&dir, 3, true);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (code, _) = json(&["check", &text(&dir)]);
    assert_eq!(code, 0);
    let names = fs::read_dir(&dir).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sst"))
        .collect();
    names.sort();
    let whole = fs::read(dir.join(&names[0])).unwrap();
    let (_, id) = parse_file_name(&names[0]).unwrap();
    let reader = {
        let file = PosixEnv::new().open(&dir.join(&names[0])).unwrap();
        let cache = Arc::new(BlockCache::new(1 << 20));
        SstReader::open(file, id, names[0].clone(), cache).unwrap()
    };
    let block = reader.blocks().unwrap().iter().next().unwrap().bytes as usize;
    // First give the footer a feature that only a newer version knows, then mark a block as
    // encrypted.
    let footer = whole.len() - 72;
    for (at, len, byte, value) in [(footer, 64, 48, 2), (0, block, 2, 1)] {
        let mut bytes = whole.clone();
        bytes[at + byte] = value;
        let sum = firn::base::checksum::placed(&bytes[at..at + len - 8], id, at as u64);
        bytes[at + len - 8..at + len].copy_from_slice(&sum.to_le_bytes());
        fs::write(dir.join(&names[0]), bytes).unwrap();
        let (code, found) = json(&["check", "--files-only", &text(&dir)]);
        let findings = found["findings"].as_array().unwrap();
        let kinds = |kind: &str| findings.iter().filter(|f| f["severity"] == kind).count();
        assert!(kinds("unsupported") > 0, "{found}");
        if at > 0 {
            // Only for the footer: a change of a block also makes the checksum of the whole file
            // wrong, which counts as damage.
            assert_eq!((code, kinds("damage")), (4, 0), "{found}");
            assert_eq!(
                (&found["sound"], &found["unsupported"]),
                (&false.into(), &true.into())
            );
        }
        let new = root.path().join("new");
        let (code, said) = json(&["repair", &text(&dir), &text(&new)]);
        assert_eq!(code, 4, "{said}");
        let _ = fs::remove_dir_all(&new);
    }
}
