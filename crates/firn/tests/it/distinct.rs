//! Rows-per-key statistics compared with a model: from the sketches of files, from memtables, after
//! compactions and reopens.

use crate::schema::open_or_create;
use firn::base::options::Options;
use firn::base::record_buffer::{NullBit, Pad};
use firn::catalog::{
    CollationSchema, ColumnSchema, IndexPart, IndexSchema, PartSchema, TableLocking, TableSchema,
};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::keycode::{CollationLevel, CollationSpec, Collator, TextForm};
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use firn::table::{RowScratch, Table, WriteFlags, WriteOutcome};
use firn::txn::Isolation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// A case-insensitive collation for ASCII: lower-case letters have the weights of upper-case ones.
#[derive(Debug)]
struct Folding;

impl Collator for Folding {
    fn sort_key(&self, _level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        weights.extend(text.iter().map(u8::to_ascii_uppercase));
        text.len()
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn chars(&self, text: &[u8]) -> usize {
        text.len()
    }
}

const TEXT_MAX: usize = 12;
const RECORD: usize = 1 + 4 + 4 + 4 + (1 + TEXT_MAX) + (1 + TEXT_MAX) + 4;
const B_NULL: NullBit = NullBit { offset: 0, mask: 1 };
const C_NULL: NullBit = NullBit { offset: 0, mask: 2 };
const U_NULL: NullBit = NullBit { offset: 0, mask: 4 };

/// The columns of a row without its id: `a` and `b` numbers, `c` case-insensitive text, `d` bytes,
/// `u` a unique number.
#[derive(Clone)]
struct Row {
    a: i32,
    b: Option<i32>,
    c: Option<Vec<u8>>,
    d: Vec<u8>,
    u: Option<i32>,
}

fn text() -> PartSchema {
    let level = CollationLevel {
        number: 0,
        space: 0x20,
        no_pad: false,
    };
    PartSchema::Text(CollationSchema {
        spec: CollationSpec {
            id: 8,
            name: "folding_ci".into(),
            pad: Pad::SPACE,
            levels: vec![level],
            weight_len: 1,
            simple: Vec::new(),
            form: TextForm::Lost,
            char_filled: false,
        },
        collator: Some(Arc::new(Folding)),
    })
}

/// A table with the indexes PRIMARY (a, id), bc (b, c), cdb (c DESC, d(2), b DESC), UNIQUE u (u),
/// d (d).
fn schema() -> TableSchema {
    let fixed = ColumnKind::Fixed { len: 4 };
    let var = ColumnKind::VarChar {
        len_bytes: 1,
        max: TEXT_MAX as u32,
    };
    let kinds = [
        ("id", fixed, None),
        ("a", fixed, None),
        ("b", fixed, Some(B_NULL)),
        ("c", var, Some(C_NULL)),
        ("d", var, None),
        ("u", fixed, Some(U_NULL)),
    ];
    let mut offset = 1;
    let columns = kinds.iter().zip(1..).map(|(&(name, kind, null), id)| {
        let column = ColumnSchema {
            name: name.to_owned(),
            type_code: 0,
            chars: 0,
            interpretation: 0,
            column: Column {
                id,
                kind,
                offset,
                null,
                stored: true,
                instant_default: InstantDefault::Impossible,
            },
        };
        offset += kind.record_len();
        column
    });
    let columns = columns.collect();
    let part = |column, kind, image_len| IndexPart {
        column,
        kind,
        desc: false,
        prefix: None,
        image_len,
    };
    let int = |column| part(column, PartSchema::Int { signed: true }, 4);
    let desc = |part| IndexPart { desc: true, ..part };
    let c = || part(3, text(), TEXT_MAX as u32);
    let d = || part(4, PartSchema::VarBytes, TEXT_MAX as u32);
    let start = IndexPart {
        prefix: Some(2),
        image_len: 2,
        ..d()
    };
    let index = |name: &str, unique, parts| IndexSchema {
        name: name.to_owned(),
        unique,
        parts,
    };
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns,
        indexes: vec![
            index("PRIMARY", true, vec![int(1), int(0)]),
            index("bc", false, vec![int(2), c()]),
            index("cdb", false, vec![desc(c()), start, desc(int(2))]),
            index("u", true, vec![int(5)]),
            index("d", false, vec![d()]),
        ],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

fn record(id: i32, row: &Row) -> [u8; RECORD] {
    let mut out = [0; RECORD];
    out[0] = u8::from(row.b.is_none()) | u8::from(row.c.is_none()) << 1;
    out[0] |= u8::from(row.u.is_none()) << 2;
    out[1..5].copy_from_slice(&id.to_le_bytes());
    out[5..9].copy_from_slice(&row.a.to_le_bytes());
    out[9..13].copy_from_slice(&row.b.unwrap_or(0).to_le_bytes());
    for (at, bytes) in [(13, row.c.as_deref().unwrap_or(b"")), (26, &row.d[..])] {
        out[at] = bytes.len() as u8;
        out[at + 1..at + 1 + bytes.len()].copy_from_slice(bytes);
    }
    out[39..43].copy_from_slice(&row.u.unwrap_or(0).to_le_bytes());
    out
}

struct World {
    seed: u64,
    env: MemEnv,
    db: Option<Arc<Db>>,
    table: Arc<Table>,
    rows: BTreeMap<i32, Row>,
    rng: StdRng,
    /// Approximate number of distinct values of a column.
    values: i32,
}

fn open(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        target_file_size: 16 << 10,
        base_level_size: 32 << 10,
        block_size: 1 << 10,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new("/db"), options, None).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let env = MemEnv::new();
        let db = open(&env);
        let table = open_or_create(&db, "d/t", schema());
        let mut rng = StdRng::seed_from_u64(seed);
        let values = 1 << rng.random_range(0..11);
        Self {
            seed,
            env,
            db: Some(db),
            table,
            rows: BTreeMap::new(),
            rng,
            values,
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn row(&mut self, id: i32) -> Row {
        let (rng, values) = (&mut self.rng, self.values);
        let mut letters = |max: usize| {
            let number = rng.random_range(0..values);
            let upper = rng.random_bool(0.5);
            let digits = format!("{number:o}");
            let letters = digits.bytes().map(|d| d - b'0' + b'a');
            let fold = |b: u8| if upper { b.to_ascii_uppercase() } else { b };
            let mut text: Vec<u8> = letters.map(fold).take(max).collect();
            // With PAD SPACE, trailing spaces do not change the value.
            text.resize(text.len() + usize::from(upper), b' ');
            text
        };
        let (c, d) = (letters(TEXT_MAX - 1), letters(TEXT_MAX - 1));
        Row {
            a: rng.random_range(-values / 2..=values / 2),
            b: rng.random_bool(0.8).then(|| rng.random_range(0..values)),
            c: rng.random_bool(0.9).then_some(c),
            d,
            u: rng.random_bool(0.5).then_some(id),
        }
    }

    /// Inserts or updates the rows with these ids; with `delete`, deletes those that exist.
    fn write(&mut self, ids: impl Iterator<Item = i32>, delete: bool) {
        let mut txn = self.db().new_transaction(self.db().new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
        let mut scratch = RowScratch::default();
        let flags = WriteFlags::default();
        for id in ids {
            let old = self.rows.get(&id).map(|old| record(id, old));
            let row = self.row(id);
            let new = record(id, &row);
            let table = &self.table;
            // SAFETY: blob columns must point to their bytes; this table has none.
            let done = unsafe {
                match old {
                    Some(old) if delete => {
                        let gone = table.delete(&mut txn, &old, None, flags, &mut scratch);
                        gone.unwrap();
                        self.rows.remove(&id);
                        continue;
                    }
                    None if delete => continue,
                    Some(old) => table.update(&mut txn, &old, &new, None, flags, &mut scratch),
                    None => table.insert(&mut txn, &new, flags, &mut scratch),
                }
            };
            let done = done.unwrap();
            assert!(matches!(
                done,
                WriteOutcome::Done { .. } | WriteOutcome::Same
            ));
            self.rows.insert(id, row);
        }
        txn.commit().unwrap();
    }

    fn reopen(&mut self) {
        self.db.take().unwrap().close().unwrap();
        let db = open(&self.env);
        self.table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
        self.db = Some(db);
    }

    /// The exact number of distinct values of each prefix of each index.
    fn truth(&self) -> Vec<Vec<usize>> {
        let c = |row: &Row| {
            let text = row.c.as_ref().map(|text| text.to_ascii_uppercase());
            text.map(|text| text.trim_ascii_end().to_vec())
        };
        let start = |row: &Row| row.d[..row.d.len().min(2)].to_vec();
        let rows = || self.rows.iter();
        let count = |values: &mut dyn Iterator<Item = String>| {
            let values: BTreeSet<String> = values.collect();
            values.len()
        };
        macro_rules! distinct {
            (|$id:ident, $row:ident| $value:expr) => {
                count(&mut rows().map(|($id, $row)| format!("{:?}", $value)))
            };
        }
        vec![
            vec![distinct!(|_id, r| r.a), distinct!(|id, _r| id)],
            vec![distinct!(|_id, r| r.b), distinct!(|_id, r| (r.b, c(r)))],
            vec![
                distinct!(|_id, r| c(r)),
                distinct!(|_id, r| (c(r), start(r))),
                distinct!(|_id, r| (c(r), start(r), r.b)),
            ],
            vec![distinct!(|_id, r| r.u)],
            vec![distinct!(|_id, r| r.d)],
        ]
    }

    /// Compares the statistics with the exact numbers. With `at_rest`, no old versions are left, so
    /// that too many distinct values are an error too, not only too few.
    fn check(&self, what: &str, at_rest: bool) {
        let views = &self.db().context().super_versions;
        // After an open the number of rows is an estimate until the table is at rest.
        let size = self.table.size(views);
        if at_rest {
            assert_eq!(size, self.table.statistics(views).size, "{what}");
        }
        let rows = size.rows as f64;
        let stored = self.rows.len() as f64;
        assert!(
            rows <= 1.5 * stored && stored <= 1.5 * rows,
            "{what}: {rows} of {stored} rows"
        );
        for (index, prefixes) in self.truth().iter().enumerate() {
            let per_key = self.table.rows_per_key(views, index).unwrap();
            assert_eq!(per_key.len(), prefixes.len());
            for (part, (&per_key, &distinct)) in per_key.iter().zip(prefixes).enumerate() {
                let found = rows / per_key;
                let distinct = (distinct as f64).min(rows);
                // Three standard errors of the sketches, and the rounding of small numbers.
                let margin = 3.0 * 0.065 * distinct + 0.5;
                let context = format!(
                    "seed {}, {what}: {found} for {distinct} of {} in index {index}, part {part}",
                    self.seed,
                    self.rows.len()
                );
                assert!(found >= distinct - margin, "{context}");
                assert!(!at_rest || found <= distinct + margin, "{context}");
                assert!(per_key >= 1.0, "{context}");
            }
        }
    }

    /// Checks that every file has sketches of every index of which it has entries.
    fn check_files(&self, what: &str) {
        let entry = self.db().catalog().get("d/t").unwrap();
        let version = &self.db().context().super_versions.pin().version;
        let mut files = 0;
        for (_, file) in version.files() {
            for index in entry.index_ids() {
                if file.index(index).is_some() {
                    let sketches = file.sketches(index).unwrap();
                    assert!(sketches.is_some(), "{what}, {file:?}, index {index}");
                    files += 1;
                }
            }
        }
        assert!(files > 0, "{what}");
    }
}

#[test]
fn rows_per_key_follow_the_rows_wherever_these_are() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        world.write(0..2000, false);
        world.check("in the memtable", true);
        world.db().flush().unwrap();
        world.write(2000..3000, false);
        world.check("in a file and the memtable", true);
        world.reopen();
        world.check_files("recovered");
        world.check("recovered", true);
        world.write((0..3000).step_by(5), false);
        world.write((0..3000).step_by(7), true);
        world.db().flush().unwrap();
        world.db().compact_all().unwrap();
        world.check_files("at rest");
        world.check("at rest", true);
        world.reopen();
        world.check("opened", true);
        // An update writes no entry to an index whose columns do not change, so old versions add
        // only some distinct values.
        world.write((0..3000).step_by(3), false);
        world.db().flush().unwrap();
        world.check("with old versions", false);
    }
}

/// Neither deleted values nor values that a compaction has dropped count.
#[test]
fn values_that_are_gone_are_forgotten() {
    let mut world = World::new(77);
    world.values = 1500;
    world.write(0..1500, false);
    world.db().flush().unwrap();
    world.values = 3;
    world.write(0..1500, false);
    world.db().flush().unwrap();
    world.db().compact_all().unwrap();
    world.check("few values are left", true);
    world.write(0..1500, true);
    let views = &world.db().context().super_versions;
    assert_eq!(world.table.rows_per_key(views, 1).unwrap(), [1.0, 1.0]);
}

/// A memtable with more entries than are counted one by one is sampled.
#[test]
fn large_memtables_are_sampled() {
    let mut world = World::new(78);
    world.values = 400;
    world.write(0..33_000, false);
    let views = &world.db().context().super_versions;
    let per_key = world.table.rows_per_key(views, 4).unwrap()[0];
    let truth = world.rows.len() as f64 / world.truth()[4][0] as f64;
    assert!(
        (0.5..2.0).contains(&(per_key / truth)),
        "{per_key} for {truth}"
    );
}
