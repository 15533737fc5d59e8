//! DDL on a referenced table between the steps of a copying ALTER of the referencing table. The
//! host locks only the tables that each statement names, so either may come first at each step.

use super::*;
use firn::catalog::{DdlSession, IndexChange, IndexOrigin};
use std::collections::BTreeSet;

const NEW: &str = "d/#sql-alter-1-2";
const OLD: &str = "d/#sql-backup-1-2";

/// One call of the host in a copying ALTER of `d/c`.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    SwapOut,
    TakeName,
    GoBack,
    DropOld,
    DropNew,
}

const SUCCEEDS: [Step; 4] = [Step::Create, Step::SwapOut, Step::TakeName, Step::DropOld];
const FAILS: [Step; 4] = [Step::Create, Step::SwapOut, Step::GoBack, Step::DropNew];

/// The other session's statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    RenameTable,
    RenameColumn,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Step(Step),
    Change(Other),
}

/// A database with `p` and `c`, and the names that the referenced table and its column have now.
struct Ddl {
    env: MemEnv,
    db: Arc<Db>,
    parent: &'static str,
    column: &'static str,
}

fn open(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new("/db"), options, None).unwrap()
}

fn new_table(schema: TableSchema) -> NewTable<'static> {
    NewTable {
        schema,
        frm: b"",
        version: b"",
        created_micros: 0,
    }
}

fn child_schema() -> TableSchema {
    schema(&["id", "p"], &[("PRIMARY", true, 0), ("p", false, 1)])
}

impl Ddl {
    fn new() -> Self {
        let env = MemEnv::new();
        let ddl = Self {
            db: open(&env),
            env,
            parent: "d/p",
            column: "id",
        };
        let catalog = ddl.db().catalog();
        catalog
            .create("d/p", new_table(ddl.parent_schema()))
            .unwrap();
        let key = request("id", ReferentialAction::Restrict);
        catalog
            .create_referencing("d/c", new_table(child_schema()), 0, &key)
            .unwrap();
        ddl
    }

    fn db(&self) -> &Arc<Db> {
        &self.db
    }

    fn parent_schema(&self) -> TableSchema {
        schema(&[self.column], &[("PRIMARY", true, 0)])
    }

    fn step(&self, step: Step) {
        let catalog = self.db().catalog();
        let mut checked = TableRename::default();
        checked.session.checks = true;
        let rename = |from, to| catalog.rename_referencing(from, to, &checked).unwrap();
        match step {
            Step::Create => {
                // The host has read the foreign key before the other session's statement.
                let mut inherited = request("id", ReferentialAction::Restrict);
                inherited.added[0].inherited = true;
                inherited.added[0].name = Some("c_ibfk_1".into());
                inherited.replaces = Some("d/c".into());
                catalog
                    .create_referencing(NEW, new_table(child_schema()), 0, &inherited)
                    .map(|_| ())
                    .unwrap();
            }
            Step::SwapOut => rename("d/c", OLD),
            Step::TakeName => rename(NEW, "d/c"),
            Step::GoBack => rename(OLD, "d/c"),
            Step::DropOld => catalog.drop_table(OLD).unwrap(),
            Step::DropNew => catalog.drop_table(NEW).unwrap(),
        }
    }

    /// Runs the other session's statement, or takes it back.
    fn change(&mut self, other: Other) {
        match other {
            Other::RenameTable => {
                let to = if self.parent == "d/p" { "d/q" } else { "d/p" };
                let rename = TableRename::default();
                self.db()
                    .catalog()
                    .rename_referencing(self.parent, to, &rename)
                    .unwrap();
                self.parent = to;
            }
            Other::RenameColumn => {
                self.column = if self.column == "id" { "id2" } else { "id" };
                let change = IndexChange {
                    table: self.parent,
                    schema: self.parent_schema(),
                    columns: (0..self.parent_schema().columns.len()).map(Some).collect(),
                    indexes: vec![IndexOrigin::Old(0)],
                    autoincrement: None,
                    foreign_keys: &ForeignKeyRequest::default(),
                };
                let session = DdlSession::default();
                let catalog = self.db().catalog();
                catalog
                    .change_indexes(vec![change], b"", b"", &session)
                    .unwrap();
            }
        }
    }

    /// Checks that each index has one table, and that each foreign key, also one of a copy, refers
    /// to the referenced table and column by their present names.
    fn check_entries(&self, db: &Db, at: &str) {
        let known = db.catalog().known();
        let mut ids = BTreeSet::new();
        for (name, entry) in &known.tables {
            for id in entry.index_ids() {
                assert!(
                    ids.insert(id),
                    "{at}: another table has index {id} of {name}"
                );
            }
            for key in &entry.foreign_keys {
                assert_eq!(key.parent, self.parent, "{at}: {name}");
                assert_eq!(key.columns[0].referenced, self.column, "{at}: {name}");
            }
        }
        let names = |parent| {
            let keys = db.catalog().referencing(parent).into_iter();
            keys.map(|(_, key)| key.name).collect::<Vec<_>>()
        };
        for name in ["d/p", "d/q"] {
            let right = name == self.parent;
            // A table that was swapped out before a restart is only a copy afterwards.
            if !right || known.tables.contains_key("d/c") {
                assert_eq!(names(name).len(), usize::from(right), "{at}: {name}");
            }
        }
    }

    fn play(&mut self, event: Event) {
        match event {
            Event::Step(step) => self.step(step),
            Event::Change(other) => self.change(other),
        }
    }

    /// Checks the entries after a crash at this point.
    fn crash(self, at: &str) {
        let crashed = self.env.kill();
        self.check_entries(&open(&crashed), &format!("{at}, after a crash"));
    }

    /// Checks that the foreign key is enforced on both sides.
    fn check_rows(&self, at: &str) {
        let known = self.db().catalog().known();
        let names: Vec<&str> = known.tables.keys().map(String::as_str).collect();
        assert_eq!(names, ["d/c", self.parent], "{at}");
        let db = Arc::clone(self.db());
        let catalog = db.catalog();
        let world = World {
            parent: Table::open(catalog, self.parent, self.parent_schema(), &[]).unwrap(),
            child: Table::open(catalog, "d/c", child_schema(), &[]).unwrap(),
            db: Arc::clone(&db),
            statement: AtomicU64::new(0),
        };
        let (row, mut scratch) = (record(&[1]), RowScratch::default());
        let mut txn = world.begin(0);
        let flags = WriteFlags::default();
        // SAFETY: blob columns must point to their bytes; the table has none.
        unsafe { world.parent.insert(&mut txn, &row, flags, &mut scratch) }.unwrap();
        world.insert_child(&mut txn, 1, 1).unwrap();
        txn.commit().unwrap();
        let mut txn = world.begin(0);
        let orphan = world.insert_child(&mut txn, 2, 2);
        let missing = ForeignKeyViolation::NoReferencedRow;
        assert_eq!(violation(&orphan), Some(missing), "{at}");
        // SAFETY: as above.
        let deleted = unsafe {
            world
                .parent
                .delete(&mut txn, &row, None, flags, &mut scratch)
        };
        let referenced = ForeignKeyViolation::RowIsReferenced;
        assert_eq!(violation(&deleted), Some(referenced), "{at}");
        txn.rollback().unwrap();
    }
}

/// Plays the other statement before the step `first`, and takes it back before the step `second`,
/// if there is one.
fn run(steps: &[Step], other: Other, first: usize, second: Option<usize>) {
    let mut events = Vec::new();
    for at in 0..=steps.len() {
        let changes = [Some(first), second].into_iter();
        events.extend(
            changes
                .filter(|one| *one == Some(at))
                .map(|_| Event::Change(other)),
        );
        events.extend(steps.get(at).map(|step| Event::Step(*step)));
    }
    let mut ddl = Ddl::new();
    for (at, event) in events.iter().enumerate() {
        let place = format!("event {at} of {events:?}");
        ddl.play(*event);
        ddl.check_entries(ddl.db(), &place);
        let references = ddl.db().catalog().referencing(ddl.parent).len();
        assert_eq!(references, 1, "{place}");
        // Two changes before a crash are no different from one or none.
        if second.is_none() {
            let mut crashing = Ddl::new();
            for event in &events[..=at] {
                crashing.play(*event);
            }
            crashing.crash(&place);
        }
    }
    ddl.check_rows(&format!("{events:?}"));
}

#[test]
fn a_change_of_the_referenced_table_reaches_every_copy() {
    for steps in [SUCCEEDS, FAILS] {
        for other in [Other::RenameTable, Other::RenameColumn] {
            for first in 0..=steps.len() {
                run(&steps, other, first, None);
                for second in first..=steps.len() {
                    run(&steps, other, first, Some(second));
                }
            }
        }
    }
}
