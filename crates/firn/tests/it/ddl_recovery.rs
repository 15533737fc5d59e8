//! The end of DDL that a crash has interrupted: which copies are dropped, and which get a name
//! back.
//!
//! A table is known by the id of its clustered index, so each test says which rows a name must
//! have.

use super::prepared::{begin, insert, schema};
use firn::base::options::Options;
use firn::base::{ErrorKind, IndexId};
use firn::catalog::{
    DefinitionFiles, ForeignKeyColumn, ForeignKeyRequest, LeftoverFate, NewForeignKey, NewTable,
    ReferentialAction, TableEntry, TableRename,
};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::table::Table;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Definition files in memory: the version in each. Those in `foreign` are another engine's.
#[derive(Default)]
struct Files {
    versions: RefCell<BTreeMap<String, String>>,
    /// The partitions that the last recovery named for each table.
    partitions: RefCell<BTreeMap<String, String>>,
    foreign: Vec<&'static str>,
}

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let versions = files
            .iter()
            .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
        Self {
            versions: RefCell::new(versions.collect()),
            ..Self::default()
        }
    }
}

impl DefinitionFiles for Files {
    fn version(&self, table: &str) -> Option<Vec<u8>> {
        let versions = self.versions.borrow();
        versions
            .get(table)
            .map(|version| version.clone().into_bytes())
    }

    fn list(&self, database: &str) -> Vec<String> {
        let versions = self.versions.borrow();
        let of_database = versions
            .keys()
            .filter(|name| name.starts_with(&format!("{database}/")));
        of_database.cloned().collect()
    }

    fn is_own(&self, table: &str) -> bool {
        !self.foreign.contains(&table)
    }

    fn place(&self, table: &str, _copy: &str, entry: &TableEntry) -> bool {
        let version = String::from_utf8(entry.version.clone()).unwrap();
        let mut versions = self.versions.borrow_mut();
        let possible = self.is_own(table);
        if possible {
            versions.insert(table.to_owned(), version);
        }
        possible
    }

    fn place_partitions(&self, table: &str, partitions: &[&str]) {
        let mut placed = self.partitions.borrow_mut();
        placed.insert(table.to_owned(), partitions.join(","));
    }

    fn remove(&self, copy: &str) {
        self.versions.borrow_mut().remove(copy);
    }
}

fn open(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        wal_segment_size: 64 << 10,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new("/db"), options, None).unwrap()
}

/// Creates a table of the definition `version`; a copy replaces `replaces`. Returns its id.
fn create(db: &Db, name: &str, version: &str, replaces: Option<&str>) -> IndexId {
    let request = ForeignKeyRequest {
        replaces: replaces.map(str::to_owned),
        ..ForeignKeyRequest::default()
    };
    let definition = NewTable {
        schema: schema(),
        frm: b"image",
        version: version.as_bytes(),
        created_micros: 0,
    };
    let catalog = db.catalog();
    let entry = catalog.create_referencing(name, definition, 0, &request);
    entry.unwrap().clustered.id
}

/// The server is killed and recovers nothing, because it has lost its log. Returns the reopened
/// database and the ends of the copies.
fn recover(db: Arc<Db>, env: &MemEnv, files: &Files) -> (Arc<Db>, Vec<(String, LeftoverFate)>) {
    drop(db);
    let db = open(&env.kill());
    db.catalog().begin_ddl_recovery();
    let fates = end(&db, files);
    (db, fates)
}

fn end(db: &Db, files: &Files) -> Vec<(String, LeftoverFate)> {
    let mut fates = Vec::new();
    db.catalog().end_ddl_recovery(files, &mut |copy, fate| {
        fates.push((copy.to_owned(), fate.clone()));
    });
    fates
}

/// All tables: name and id.
fn tables(db: &Db) -> Vec<(String, IndexId)> {
    let all = db.catalog().list("");
    all.iter()
        .map(|entry| (entry.name.clone(), entry.clustered.id))
        .collect()
}

fn expect(db: &Db, wanted: &[(&str, IndexId)]) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(name, id)| ((*name).to_owned(), *id))
        .collect();
    assert_eq!(tables(db), wanted);
    assert_eq!(db.catalog().known().only_copy(), None);
}

fn rename(db: &Db, from: &str, to: &str) {
    db.catalog().rename(from, to).unwrap();
}

const NEW: &str = "d/#sql-alter-1-5";
const OLD: &str = "d/#sql-backup-1-5";
const SET_ASIDE: &str = "d/#sql-exchange-1-5";

#[test]
fn the_old_table_of_an_alter_gets_its_name_back_until_the_new_one_has_it() {
    let env = MemEnv::new();
    let db = open(&env);
    let old = create(&db, "d/t", "v1", None);
    create(&db, NEW, "v2", Some("d/t"));
    rename(&db, "d/t", OLD);
    assert_eq!(db.catalog().known().only_copy(), Some(OLD));
    // The server has moved the old definition away.
    let files = Files::new(&[(OLD, "v1"), (NEW, "v2")]);
    let (db, fates) = recover(db, &env, &files);
    expect(&db, &[("d/t", old)]);
    let restored = LeftoverFate::Restored("d/t".to_owned());
    let dropped = LeftoverFate::Dropped;
    assert_eq!(
        fates,
        [(OLD.to_owned(), restored), (NEW.to_owned(), dropped)]
    );
    assert_eq!(
        *files.versions.borrow(),
        Files::new(&[("d/t", "v1")]).versions.into_inner()
    );

    // One step further: the new table has the name, and the old one is garbage.
    let env = MemEnv::new();
    let db = open(&env);
    create(&db, "d/t", "v1", None);
    let new = create(&db, NEW, "v2", Some("d/t"));
    rename(&db, "d/t", OLD);
    rename(&db, NEW, "d/t");
    assert_eq!(db.catalog().known().only_copy(), None);
    let files = Files::new(&[(OLD, "v1"), (NEW, "v2")]);
    let (db, fates) = recover(db, &env, &files);
    expect(&db, &[("d/t", new)]);
    assert_eq!(fates, [(OLD.to_owned(), LeftoverFate::Dropped)]);
    assert_eq!(
        *files.versions.borrow(),
        Files::new(&[("d/t", "v2")]).versions.into_inner()
    );
}

#[test]
fn an_alter_that_renames_leaves_no_second_table() {
    let env = MemEnv::new();
    let db = open(&env);
    create(&db, "d/t", "v1", None);
    let new = create(&db, NEW, "v2", Some("d/t"));
    rename(&db, "d/t", OLD);
    rename(&db, NEW, "d/u");
    let (db, _) = recover(db, &env, &Files::new(&[("d/u", "v2")]));
    expect(&db, &[("d/u", new)]);
}

/// The old table waits in its own database, the new one in the other.
#[test]
fn an_alter_that_moves_the_table_to_another_database_ends() {
    for (from, to) in [("d", "e"), ("e", "d")] {
        let (table, moved) = (format!("{from}/t"), format!("{to}/u"));
        let old_copy = format!("{from}/#sql-backup-1-5");
        let new_copy = format!("{to}/#sql-alter-1-5");
        let begin = |env: &MemEnv| {
            let db = open(env);
            let old = create(&db, &table, "v1", None);
            let new = create(&db, &new_copy, "v2", Some(&table));
            rename(&db, &table, &old_copy);
            (db, old, new)
        };
        let env = MemEnv::new();
        let (db, _, new) = begin(&env);
        rename(&db, &new_copy, &moved);
        let (db, _) = recover(db, &env, &Files::new(&[(&moved, "v2")]));
        expect(&db, &[(&moved, new)]);

        let env = MemEnv::new();
        let (db, old, _) = begin(&env);
        let files = Files::new(&[(&old_copy, "v1"), (&new_copy, "v2")]);
        let (db, _) = recover(db, &env, &files);
        expect(&db, &[(&table, old)]);
    }
}

/// An ALTER before the last restart had the same mark, and its old table is kept.
#[test]
fn an_old_table_with_the_same_mark_is_not_that_of_another_alter() {
    let env = MemEnv::new();
    let db = open(&env);
    let kept = create(&db, "d/x", "v1", None);
    rename(&db, "d/x", OLD);
    create(&db, "d/t", "v2", None);
    let new = create(&db, NEW, "v3", Some("d/t"));
    db.catalog().drop_table("d/t").unwrap();
    rename(&db, NEW, "d/u");
    let (db, _) = recover(db, &env, &Files::new(&[(OLD, "v1"), ("d/u", "v3")]));
    expect(&db, &[("d/u", new), ("d/x", kept)]);
}

#[test]
fn a_new_table_that_is_half_in_place_gets_the_rest() {
    let env = MemEnv::new();
    let db = open(&env);
    for part in ["a", "b"] {
        create(&db, &format!("d/t#P#{part}"), "v1", None);
    }
    let new = ["a", "c"].map(|part| create(&db, &format!("{NEW}#P#{part}"), "v2", Some("d/t")));
    for part in ["a", "b"] {
        rename(&db, &format!("d/t#P#{part}"), &format!("{OLD}#P#{part}"));
    }
    rename(&db, &format!("{NEW}#P#a"), "d/t#P#a");
    let files = Files::new(&[(OLD, "v1"), (NEW, "v2")]);
    let (db, _) = recover(db, &env, &files);
    expect(&db, &[("d/t#P#a", new[0]), ("d/t#P#c", new[1])]);
    assert_eq!(
        *files.versions.borrow(),
        Files::new(&[("d/t", "v2")]).versions.into_inner()
    );
}

#[test]
fn the_new_table_stays_if_the_old_one_is_gone() {
    // The server has dropped the old table, and may have moved the definition.
    for definition in [(NEW, "v2"), ("d/t", "v2")] {
        let env = MemEnv::new();
        let db = open(&env);
        create(&db, "d/t", "v1", None);
        let new = create(&db, NEW, "v2", Some("d/t"));
        db.catalog().drop_table("d/t").unwrap();
        assert_eq!(db.catalog().known().only_copy(), Some(NEW));
        let files = Files::new(&[definition]);
        let (db, _) = recover(db, &env, &files);
        expect(&db, &[("d/t", new)]);
        assert_eq!(
            *files.versions.borrow(),
            Files::new(&[("d/t", "v2")]).versions.into_inner()
        );
    }
}

#[test]
fn a_new_table_without_an_old_one_gets_all_its_partitions() {
    let env = MemEnv::new();
    let db = open(&env);
    create(&db, "d/t", "v1", None);
    let parts = ["a", "b"];
    let new = parts.map(|part| create(&db, &format!("{NEW}#P#{part}"), "v2", Some("d/t")));
    db.catalog().drop_table("d/t").unwrap();
    rename(&db, &format!("{NEW}#P#a"), "d/t#P#a");
    let files = Files::new(&[("d/t", "v2")]);
    let (db, _) = recover(db, &env, &files);
    expect(&db, &[("d/t#P#a", new[0]), ("d/t#P#b", new[1])]);
    assert_eq!(files.partitions.borrow()["d/t"], "a,b");
}

#[test]
fn the_copy_of_an_unfinished_alter_is_dropped() {
    let env = MemEnv::new();
    let db = open(&env);
    let old = create(&db, "d/t", "v1", None);
    create(&db, NEW, "v2", Some("d/t"));
    // A copy of another engine's table stands for none of ours.
    create(&db, "d/#sql-alter-1-6", "v3", Some("d/other"));
    create(&db, "d/#sql-create-1-7", "v4", None);
    let files = Files::new(&[("d/t", "v1"), ("d/other", "foreign")]);
    let (db, fates) = recover(db, &env, &files);
    expect(&db, &[("d/t", old)]);
    assert_eq!(fates.len(), 3, "{fates:?}");
    assert_eq!(files.version("d/t").unwrap(), b"v1");
}

#[test]
fn the_new_table_replaces_what_the_server_has_left_of_the_old_one() {
    for prepared in [false, true] {
        let env = MemEnv::new();
        let db = open(&env);
        let old = create(&db, "d/t", "v1", None);
        if prepared {
            let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
            let mut txn = begin(&db);
            insert(&table, &mut txn, 1, None).unwrap();
            txn.prepare(b"x").unwrap();
            drop(txn);
        }
        let new = create(&db, NEW, "v2", Some("d/t"));
        // The server has moved the definition, whatever has become of the old table.
        let files = Files::new(&[("d/t", "v2")]);
        let (db, _) = recover(db, &env, &files);
        let (id, version) = match prepared {
            false => (new, "v2"),
            // A prepared transaction keeps its table.
            true => (old, "v1"),
        };
        expect(&db, &[("d/t", id)]);
        assert_eq!(files.version("d/t").unwrap(), version.as_bytes());
    }
}

#[test]
fn a_copy_stays_if_another_engine_has_the_name_of_its_table() {
    let env = MemEnv::new();
    let db = open(&env);
    let old = create(&db, "d/t", "v1", None);
    rename(&db, "d/t", OLD);
    let mut files = Files::new(&[("d/t", "foreign")]);
    files.foreign.push("d/t");
    let (db, mut fates) = recover(db, &env, &files);
    for _ in 0..2 {
        assert!(
            matches!(&fates[..], [(_, LeftoverFate::Kept(_))]),
            "{fates:?}"
        );
        assert_eq!(tables(&db), [(OLD.to_owned(), old)]);
        fates = end(&db, &files);
    }
    // The other table is gone.
    files.foreign.clear();
    end(&db, &files);
    expect(&db, &[("d/t", old)]);
}

#[test]
fn an_exchange_is_undone_from_each_step() {
    let part = "d/p#P#a";
    for steps in 0..=3 {
        let env = MemEnv::new();
        let db = open(&env);
        let table = create(&db, "d/t", "v1", None);
        let partition = create(&db, part, "v2", None);
        let renames = [("d/t", SET_ASIDE), (part, "d/t"), (SET_ASIDE, part)];
        for (from, to) in &renames[..steps] {
            rename(&db, from, to);
        }
        let is_between = steps == 1 || steps == 2;
        assert_eq!(db.catalog().known().only_copy().is_some(), is_between);
        let files = Files::new(&[("d/t", "v1"), ("d/p", "v2")]);
        let (db, _) = recover(db, &env, &files);
        match steps {
            3 => expect(&db, &[(part, table), ("d/t", partition)]),
            _ => expect(&db, &[(part, partition), ("d/t", table)]),
        }
        // Nothing remembers the exchange when it has ended.
        if steps == 3 {
            assert!(
                db.catalog()
                    .list("")
                    .iter()
                    .all(|entry| entry.original.is_none())
            );
        }
    }
}

#[test]
fn a_rename_without_its_definition_file_is_undone() {
    let env = MemEnv::new();
    let db = open(&env);
    let table = create(&db, "d/a", "v1", None);
    rename(&db, "d/a", "d/spare");
    let (db, _) = recover(db, &env, &Files::new(&[("d/a", "v1")]));
    expect(&db, &[("d/a", table)]);
}

#[test]
fn a_definition_that_is_newer_than_its_file_gets_the_file() {
    let env = MemEnv::new();
    let db = open(&env);
    let table = create(&db, "d/t", "v2", None);
    let files = Files::new(&[("d/t", "v1"), (NEW, "v2"), ("d/#sql-alter-1-9", "v9")]);
    let (db, _) = recover(db, &env, &files);
    expect(&db, &[("d/t", table)]);
    assert_eq!(
        *files.versions.borrow(),
        Files::new(&[("d/t", "v2")]).versions.into_inner()
    );
}

/// A parent, a child that refers to it, and a copy of the child that has no index for the foreign
/// key, so the foreign key does not fit it.
fn with_misfit(db: &Db) -> (IndexId, IndexId) {
    let parent = create(db, "d/p", "v1", None);
    let mut request = ForeignKeyRequest {
        added: vec![NewForeignKey {
            name: Some("refers".to_owned()),
            columns: vec![ForeignKeyColumn {
                name: schema().columns[1].name.clone(),
                referenced: schema().columns[0].name.clone(),
                chars: 0,
            }],
            parent: "d/p".to_owned(),
            on_delete: ReferentialAction::Restrict,
            ..NewForeignKey::default()
        }],
        ..ForeignKeyRequest::default()
    };
    let mut definition = schema();
    for (name, replaces) in [("d/c", None), (NEW, Some("d/c"))] {
        request.replaces = replaces.map(str::to_owned);
        request.added[0].inherited = replaces.is_some();
        if replaces.is_some() {
            definition.indexes.pop();
        }
        let new = NewTable {
            schema: definition.clone(),
            frm: b"",
            version: name.as_bytes(),
            created_micros: 0,
        };
        let catalog = db.catalog();
        catalog.create_referencing(name, new, 0, &request).unwrap();
    }
    (parent, db.catalog().get(NEW).unwrap().clustered.id)
}

#[test]
fn foreign_keys_stop_no_step_of_the_recovery() {
    let env = MemEnv::new();
    let db = open(&env);
    let (_, new) = with_misfit(&db);
    let mut checked = TableRename::default();
    checked.session.checks = true;
    let catalog = db.catalog();
    catalog.drop_table("d/c").unwrap();
    let misfit = catalog
        .rename_referencing(NEW, "d/c", &checked)
        .unwrap_err();
    assert!(matches!(misfit.kind(), ErrorKind::ForeignKey(_)));
    drop(db);
    let db = open(&env.kill());
    let catalog = db.catalog();
    catalog.begin_ddl_recovery();
    catalog.rename_referencing(NEW, "d/c", &checked).unwrap();
    catalog
        .drop_unreferenced("d/p", &checked.session, false)
        .unwrap();
    assert_eq!(end(&db, &Files::default()), []);
    expect(&db, &[("d/c", new)]);
    // Checks are on again.
    create(&db, "d/p", "v1", None);
    let used = catalog.drop_unreferenced("d/p", &checked.session, false);
    assert!(matches!(used.unwrap_err().kind(), ErrorKind::ForeignKey(_)));
}

/// Kills the database, and opens it on a disk without room; it begins with its reserve.
fn reopened_on_full_disk(db: Arc<Db>, env: &MemEnv) -> (Arc<Db>, MemEnv) {
    drop(db);
    let env = env.kill();
    // This open writes what it replays to files.
    drop(open(&env));
    let env = env.kill();
    env.fill();
    (open(&env), env)
}

#[test]
fn a_full_disk_stops_no_step_of_the_recovery() {
    let env = MemEnv::new();
    let db = open(&env);
    create(&db, "d/t", "v1", None);
    let new = create(&db, NEW, "v2", Some("d/t"));
    create(&db, "d/u", "v1", None);
    let (db, env) = reopened_on_full_disk(db, &env);
    let catalog = db.catalog();
    // Take all room that is not kept for a full disk.
    let (mut from, mut to) = ("d/u", "d/v");
    while catalog.rename(from, to).is_ok() {
        (from, to) = (to, from);
    }
    let refused = catalog.rename(from, to).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NoSpace);
    catalog.begin_ddl_recovery();
    catalog.drop_table("d/t").unwrap();
    rename(&db, NEW, "d/t");
    rename(&db, from, to);
    assert_eq!(end(&db, &Files::default()), []);
    drop(db);
    let db = open(&env.kill());
    let id = |name: &str| db.catalog().get(name).unwrap().clustered.id;
    assert_eq!(id("d/t"), new);
    id(to);
}

#[test]
fn an_alter_puts_its_copy_in_place_on_a_full_disk() {
    let env = MemEnv::new();
    let db = open(&env);
    create(&db, "d/t", "v1", None);
    create(&db, NEW, "v2", Some("d/t"));
    create(&db, "d/u", "v1", None);
    let (db, _) = reopened_on_full_disk(db, &env);
    let (mut from, mut to) = ("d/u", "d/v");
    while db.catalog().rename(from, to).is_ok() {
        (from, to) = (to, from);
    }
    rename(&db, "d/t", OLD);
    rename(&db, NEW, "d/t");
}

#[test]
fn the_new_table_gets_the_name_if_the_server_has_decided_for_it() {
    let env = MemEnv::new();
    let db = open(&env);
    let parts = ["a", "b"];
    for part in parts {
        create(&db, &format!("d/t#P#{part}"), "v1", None);
    }
    let new = parts.map(|part| create(&db, &format!("{NEW}#P#{part}"), "v2", Some("d/t")));
    // The server has set one partition aside when it is killed; its recovery renames no partition,
    // and puts the new definition in place.
    rename(&db, "d/t#P#a", &format!("{OLD}#P#a"));
    let files = Files::new(&[("d/t", "v2")]);
    let (db, _) = recover(db, &env, &files);
    expect(&db, &[("d/t#P#a", new[0]), ("d/t#P#b", new[1])]);
    assert_eq!(files.version("d/t").unwrap(), b"v2");
}
