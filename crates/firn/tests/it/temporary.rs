//! Temporary tables: ephemeral databases and a session's transactions in them.

use super::prepared::{insert, record, schema};
use firn::base::ErrorKind;
use firn::base::options::Options;
use firn::base::pause_points::{self, PausePoint};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{CountingEnv, Env, FaultEnv, MemEnv, ReadClass, SlowEnv};
use firn::table::{RowScratch, Table, WriteFlags, WriteOutcome, live_rows};
use firn::temporary::{DIRECTORY, SessionStatement, TemporaryTables, TemporaryTransactions};
use firn::txn::LockOwner;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

const HOST: &str = "/db";

struct Session {
    tables: Arc<TemporaryTables>,
    transactions: TemporaryTransactions,
    owner: Arc<LockOwner>,
    statement: SessionStatement,
}

struct Server {
    env: Arc<CountingEnv>,
    host: Arc<Db>,
    tables: Arc<TemporaryTables>,
}

/// Number of rows that are committed.
fn rows_of(db: &Db, table: &Table) -> u64 {
    let id = table.entry().clustered.id;
    let counter = db.catalog().counters().rows(id);
    live_rows(&counter, &db.context().super_versions, id).0
}

fn host(env: Arc<dyn Env>) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    Db::open(env, Path::new(HOST), options, None).unwrap()
}

impl Server {
    fn start(index_ids_max: u64) -> Self {
        let env = Arc::new(CountingEnv::new(Arc::new(MemEnv::new())));
        Self::on(env.clone(), env, index_ids_max)
    }

    /// A server on `above`, an environment that is based on `env`.
    fn on(above: Arc<dyn Env>, env: Arc<CountingEnv>, index_ids_max: u64) -> Self {
        let host = host(above);
        let tables = TemporaryTables::with_index_ids(Arc::clone(&host), index_ids_max);
        let tables = Arc::new(tables);
        Self { env, host, tables }
    }

    fn session(&self) -> Session {
        Session {
            tables: Arc::clone(&self.tables),
            transactions: TemporaryTransactions::default(),
            owner: self.host.new_owner(0),
            statement: SessionStatement {
                id: 1,
                autocommit: false,
            },
        }
    }

    fn directories(&self) -> Vec<String> {
        let parent = Path::new(HOST).join(DIRECTORY);
        let listed = self.env.list_dir(&parent);
        let mut names: Vec<String> = listed.unwrap_or_default();
        names.retain(|name| self.files(name).is_some_and(|files| !files.is_empty()));
        names.sort();
        names
    }

    fn files(&self, database: &str) -> Option<Vec<String>> {
        let dir: PathBuf = Path::new(HOST).join(DIRECTORY).join(database);
        self.env.list_dir(&dir).ok()
    }
}

impl Session {
    fn create(&mut self, name: &str) {
        let transactions = &mut self.transactions;
        self.tables.create(name, schema(), 1, transactions).unwrap();
    }

    fn drop_table(&mut self, name: &str) {
        let transactions = Some(&mut self.transactions);
        self.tables.drop_table(name, transactions).unwrap();
    }

    fn next_statement(&mut self) {
        self.transactions.end_statement(self.statement.id);
        self.statement.id += 1;
    }

    fn open(&self, name: &str) -> Arc<Table> {
        let database = self.tables.find(name).unwrap();
        Table::open(database.db().catalog(), name, schema(), &[]).unwrap()
    }

    fn insert(&mut self, name: &str, id: i32) -> WriteOutcome {
        let table = self.open(name);
        let database = self.tables.find(name).unwrap();
        let statement = self.statement;
        let txn = self
            .transactions
            .transaction(&database, statement, &self.owner);
        let flags = WriteFlags {
            private: true,
            ..WriteFlags::default()
        };
        let row = record(id, Some(id));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.insert(txn, &row, flags, &mut RowScratch::default()) }.unwrap()
    }

    /// Number of committed rows.
    fn committed(&self, name: &str) -> u64 {
        let database = self.tables.find(name).unwrap();
        rows_of(database.db(), &self.open(name))
    }
}

#[test]
fn nothing_of_a_temporary_table_is_logged_or_known_to_the_host() {
    let server = Server::start(1 << 20);
    let logged = server.host.counters().wal_bytes_written;
    let syncs = || server.env.counters().syncs.load(Ordering::Relaxed);
    let synced = syncs();
    let mut session = server.session();
    session.create("tmp/#sql1");
    for id in 0..100 {
        session.insert("tmp/#sql1", id);
    }
    session.transactions.commit().unwrap();
    assert_eq!(session.committed("tmp/#sql1"), 100);
    assert!(server.host.catalog().list("").is_empty());
    server
        .tables
        .find("tmp/#sql1")
        .unwrap()
        .db()
        .flush()
        .unwrap();
    assert_eq!(server.host.counters().wal_bytes_written, logged);
    assert_eq!(syncs(), synced);
    let files = server.files("0").unwrap();
    assert!(
        !files.iter().any(|name| name.ends_with(".wal")),
        "{files:?}"
    );
}

#[test]
fn reads_count_once_and_wait_for_a_slow_disk() {
    for slow in [false, true] {
        let env = Arc::new(CountingEnv::new(Arc::new(MemEnv::new())));
        // A disk of 40 µs is polled, which advances the clock of the environment.
        let above: Arc<dyn Env> = match slow {
            true => Arc::new(SlowEnv::new(env.clone(), "40us".parse().unwrap())),
            false => env.clone(),
        };
        let server = Server::on(above, env, 1 << 20);
        let mut session = server.session();
        session.create("a");
        for id in 0..100 {
            session.insert("a", id);
        }
        session.transactions.commit().unwrap();
        let database = server.tables.find("a").unwrap();
        database.db().flush().unwrap();

        let made = || server.env.counters().file_reads().reads();
        let counted = || server.host.file_reads().map(|one| one.reads).sum::<u64>();
        let before = (made(), counted());
        let version = Arc::clone(&database.db().context().super_versions.pin().version);
        for (_, file) in version.files() {
            file.reader().unwrap().verify().unwrap();
        }
        let reads = made() - before.0;
        assert!(reads > 0);
        assert_eq!(counted() - before.1, reads, "slow: {slow}");
        let mut classes = server.host.file_reads();
        let verify = classes.find(|one| one.class == ReadClass::Verify).unwrap();
        assert!(verify.reads > 0);
        assert_eq!(verify.latency_us_max >= 40, slow, "{verify:?}");
    }
}

#[test]
fn savepoints_and_statements_roll_back() {
    let server = Server::start(1 << 20);
    let mut session = server.session();
    session.create("a");
    let before = session.transactions.set_savepoint();
    session.insert("a", 1);
    session.next_statement();
    let after_one = session.transactions.set_savepoint();
    session.insert("a", 2);
    session
        .transactions
        .rollback_statement(session.statement.id);
    session.next_statement();
    session.insert("a", 3);
    session.next_statement();
    session.transactions.rollback_to(&after_one);
    assert!(matches!(session.insert("a", 3), WriteOutcome::Done { .. }));
    assert!(matches!(
        session.insert("a", 1),
        WriteOutcome::Duplicate { index: 0 }
    ));
    session.next_statement();
    // The savepoint was set before the transaction in the ephemeral database began.
    session.transactions.rollback_to(&before);
    assert!(matches!(session.insert("a", 1), WriteOutcome::Done { .. }));
    session.transactions.prepare().unwrap();
    session.transactions.commit().unwrap();
    assert_eq!(session.committed("a"), 1);
    session.next_statement();
    session.insert("a", 7);
    session.transactions.rollback().unwrap();
    assert_eq!(session.committed("a"), 1);
}

/// The next session finds the rows that the last session committed, because replicas hand temporary
/// tables over from session to session.
#[test]
fn a_table_passes_from_one_session_to_another() {
    let server = Server::start(1 << 20);
    let mut first = server.session();
    first.create("a");
    first.insert("a", 1);
    first.transactions.commit().unwrap();
    drop(first);
    let mut second = server.session();
    assert!(matches!(
        second.insert("a", 1),
        WriteOutcome::Duplicate { index: 0 }
    ));
    second.insert("a", 2);
    second.transactions.commit().unwrap();
    assert_eq!(second.committed("a"), 2);
}

/// Each table takes two index ids. The third table begins a database; the first one closes with its
/// last table, and an idle session does not keep it open.
#[test]
fn a_database_with_many_ids_is_replaced() {
    let server = Server::start(3);
    let mut session = server.session();
    for name in ["a", "b", "c"] {
        session.create(name);
        session.insert(name, 1);
        session.next_statement();
    }
    assert_eq!(server.directories(), ["0", "1"]);
    session.drop_table("a");
    session.drop_table("b");
    // The transaction has changed its tables.
    assert_eq!(server.directories(), ["0", "1"]);
    session.transactions.commit().unwrap();
    assert_eq!(server.directories(), ["1"]);
    assert_eq!(session.committed("c"), 1);
    session.drop_table("c");
    assert!(server.tables.is_empty());
    assert_eq!(server.directories(), ["1"]);
    server.tables.close();
    assert!(server.directories().is_empty());
}

/// Block caches know files by their ids: those of two databases differ.
#[test]
fn databases_beside_each_other_share_no_file_id() {
    let server = Server::start(3);
    let mut session = server.session();
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        session.create(name);
        session.insert(name, 1);
        session.transactions.commit().unwrap();
        session.next_statement();
    }
    for name in ["a", "c"] {
        let database = server.tables.find(name).unwrap();
        database.db().flush().unwrap();
        let view = database.db().context().super_versions.pin();
        ids.push(view.version.files().map(|(_, file)| file.file_id).max());
    }
    assert!(ids.iter().all(Option::is_some), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
}

/// A table that is dropped before the commit of its rows: the commit brings the rows into the tree,
/// and compactions must still know them as garbage.
#[test]
fn rows_of_a_dropped_table_become_garbage_after_their_commit() {
    let server = Server::start(1 << 20);
    let mut session = server.session();
    session.create("a");
    session.create("b");
    session.insert("a", 1);
    session.insert("b", 1);
    let database = server.tables.find("b").unwrap();
    let db = database.db();
    session.drop_table("a");
    let index = db.catalog().retired().into_keys().next().unwrap();
    db.compact_all().unwrap();
    db.compact_once().unwrap();
    assert!(db.catalog().retired().contains_key(&index));
    session.transactions.commit().unwrap();
    db.compact_all().unwrap();
    db.compact_once().unwrap();
    assert!(db.catalog().retired().is_empty());
    let view = db.context().super_versions.pin();
    let left = view.version.index_stats(index);
    assert_eq!(left.entries, 0, "rows of a dropped table are left");
    assert_eq!(session.committed("b"), 1);
}

/// The transaction commits its rows of a dropped table after a background job has found no entry of
/// the table's index.
#[test]
fn an_index_is_not_forgotten_while_a_commit_brings_rows_of_it() {
    let server = Server::start(1 << 20);
    let mut session = server.session();
    session.create("a");
    session.create("b");
    session.insert("a", 1);
    let database = server.tables.find("b").unwrap();
    let db = database.db();
    session.drop_table("a");
    let index = db.catalog().retired().into_keys().next().unwrap();
    db.compact_all().unwrap();
    let mut commits = 0;
    pause_points::on_this_thread(move |point| {
        if point == PausePoint::RetiredChosen {
            session.transactions.commit().unwrap();
            commits += 1;
            assert_eq!(commits, 1);
        }
    });
    db.compact_once().unwrap();
    pause_points::clear();
    assert!(db.catalog().retired().contains_key(&index));
    db.compact_all().unwrap();
    db.compact_once().unwrap();
    assert!(db.catalog().retired().is_empty());
    let view = db.context().super_versions.pin();
    assert_eq!(view.version.index_stats(index).entries, 0);
}

/// The next database cannot be opened, and the former one, which has no table left, closes slowly.
#[test]
fn a_database_that_closes_holds_up_no_other_table() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let host = Db::open(Arc::new(env.clone()), Path::new(HOST), options, None).unwrap();
    let tables = Arc::new(TemporaryTables::with_index_ids(host, 1));
    let mut transactions = TemporaryTransactions::default();
    tables.create("a", schema(), 1, &mut transactions).unwrap();
    tables.drop_table("a", None).unwrap();
    env.hang(&Path::new(HOST).join(DIRECTORY).join("0"));
    env.inject(Fault {
        class: CallClass::Create,
        nth: 1,
        sticky: false,
        errno: Errno::Io,
    });
    let created = env.count(CallClass::Create);
    let creates = Arc::clone(&tables);
    let creating = std::thread::spawn(move || {
        let created = creates.create("b", schema(), 1, &mut TemporaryTransactions::default());
        created.unwrap_err().kind().clone()
    });
    while env.count(CallClass::Create) == created {
        std::thread::yield_now();
    }
    let (answer, answered) = channel();
    let asks = Arc::clone(&tables);
    let asking = std::thread::spawn(move || answer.send(asks.find("a").is_none()));
    let found = answered.recv_timeout(Duration::from_secs(120));
    let closing = !creating.is_finished();
    env.clear();
    assert_eq!(found, Ok(true), "the close of a database holds the lock");
    assert!(closing, "the former database did not hang");
    assert_eq!(creating.join().unwrap(), ErrorKind::Io { os_errno: 5 });
    asking.join().unwrap().unwrap();
    tables.create("b", schema(), 1, &mut transactions).unwrap();
}

/// A table that is emptied in the middle of a transaction keeps none of the rows that the
/// transaction wrote.
#[test]
fn truncate_forgets_uncommitted_rows() {
    let server = Server::start(1 << 20);
    let mut session = server.session();
    session.create("a");
    session.insert("a", 1);
    let transactions = &mut session.transactions;
    session.tables.truncate("a", transactions).unwrap();
    session.next_statement();
    assert!(matches!(session.insert("a", 1), WriteOutcome::Done { .. }));
    session.transactions.commit().unwrap();
    assert_eq!(session.committed("a"), 1);
}

#[test]
fn a_start_removes_what_a_crash_has_left() {
    let server = Server::start(1 << 20);
    let mut session = server.session();
    session.create("a");
    session.insert("a", 1);
    session.transactions.commit().unwrap();
    server.tables.find("a").unwrap().db().flush().unwrap();
    assert_eq!(server.directories(), ["0"]);
    let again = TemporaryTables::new(Arc::clone(&server.host));
    assert!(server.directories().is_empty());
    assert!(again.find("a").is_none());
    // The directory of the first server is removed while it is open, so the server must not be
    // closed in order.
    std::mem::forget(session);
    std::mem::forget(server);
}

#[test]
fn a_name_is_used_once() {
    let server = Server::start(1 << 20);
    let mut session = server.session();
    session.create("a");
    let again = session
        .tables
        .create("a", schema(), 1, &mut session.transactions);
    assert_eq!(*again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    session.drop_table("a");
    let missing = session.tables.drop_table("a", None);
    assert_eq!(*missing.unwrap_err().kind(), ErrorKind::NotFound);
    session.create("a");
}

/// The host's tables are not touched by a temporary one of the same name, and its rows are logged
/// as ever.
#[test]
fn the_host_keeps_its_own_tables() {
    let server = Server::start(1 << 20);
    let table = super::schema::open_or_create(&server.host, "d/t", schema());
    let mut session = server.session();
    session.create("d/t");
    session.insert("d/t", 5);
    let mut txn = super::prepared::begin(&server.host);
    assert!(matches!(
        insert(&table, &mut txn, 5, Some(5)).unwrap(),
        WriteOutcome::Done { .. }
    ));
    txn.commit().unwrap();
    session.transactions.rollback().unwrap();
    session.drop_table("d/t");
    assert_eq!(rows_of(&server.host, &table), 1);
}

/// The table comes into being before its AUTO_INCREMENT value is set. If that fails, nothing stays.
#[test]
fn a_table_that_could_not_be_created_whole_leaves_nothing() {
    let server = Server::start(1000);
    let mut session = server.session();
    session.create("good");
    let mut damaged = schema();
    // The column lies beyond the record, which only opening the table finds out.
    damaged.columns[0].column.offset = 1000;
    let created = server
        .tables
        .create("bad", damaged, 5, &mut session.transactions);
    assert_eq!(*created.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let database = server.tables.find("good").unwrap();
    assert!(server.tables.find("bad").is_none());
    assert!(database.db().catalog().get("bad").is_err());
    session.create("bad");
    session.drop_table("bad");
    session.drop_table("good");
}
