//! Many `TRUNCATE`s, `CREATE`s and `DROP`s, called as the handler calls them, in a directory of the
//! file system and beside background threads. What a statement costs in bytes does not grow, nor do
//! the manifest, the memory and the number of files.
//!
//! `FIRN_TEST_TRUNCATES` and `FIRN_TEST_CREATES` are the numbers of statements. Each of them syncs
//! the log, so a long run belongs in a file system in memory (`TMPDIR=/dev/shm`).

#![cfg(feature = "jemalloc")]

use firn::env::{Env, PosixEnv};
use firn_capi::autoincrement::{firn_autoinc_next_value, firn_autoinc_raise};
use firn_capi::database::{firn_close, firn_config, firn_db, firn_open};
use firn_capi::ddl::{firn_create_table, firn_drop_table, firn_truncate_table};
use firn_capi::error::{firn_last_error, firn_status};
use firn_capi::foreign_keys::firn_foreign_key_request;
use firn_capi::host_callbacks::firn_host;
use firn_capi::row_writes::firn_insert;
use firn_capi::schema::{
    FIRN_COLUMN_FIXED, FIRN_PART_INT, firn_column, firn_index, firn_key_part, firn_table_def,
};
use firn_capi::session::{
    firn_begin_statement, firn_commit, firn_isolation, firn_session, firn_session_free,
    firn_session_new,
};
use firn_capi::statistics::{firn_counters, firn_read_counters};
use firn_capi::table::{firn_table, firn_table_close, firn_table_open};
use std::ffi::{CStr, CString, c_char};
use std::mem::zeroed;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

const NAME: *const c_char = c"d/t".as_ptr();
/// Bytes of a record: null bits, id INT AUTO_INCREMENT PRIMARY KEY, k INT with an index.
const RECORD_LEN: usize = 1 + 4 + 4;
/// Bytes of the server's image of the definition, about as many as a small table has.
const FRM_LEN: usize = 1000;
const LOCK_TIMEOUT_US: u64 = 1_000_000;
/// Size of a log segment, bytes.
const SEGMENT_SIZE: u64 = 1 << 20;
/// A run is compared by its tenths. Each tenth takes so many samples.
const SAMPLES: u64 = 20;

/// Both tests read the memory of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn check(status: firn_status) {
    // SAFETY: the message is a C string of this thread, valid until its next call.
    let message = unsafe { CStr::from_ptr(firn_last_error()) };
    assert_eq!(status, firn_status::FIRN_OK, "{message:?}");
}

fn count_of(variable: &str, default: u64) -> u64 {
    let count = std::env::var(variable).map_or(default, |count| count.parse().expect("a number"));
    assert!(count >= 10 * SAMPLES, "too few statements to compare");
    count
}

/// Calls `f` with the table's definition.
fn with_definition<T>(f: impl FnOnce(&firn_table_def) -> T) -> T {
    let column = |name: &'static CStr, offset| firn_column {
        name: name.as_ptr(),
        kind: FIRN_COLUMN_FIXED,
        type_code: 3,
        offset,
        len: 4,
        len_bytes: 0,
        chars: 0,
        interpretation: 0,
        null_offset: 0,
        null_mask: 0,
        stored: true,
        pad_len: 0,
        pad: [0; 4],
    };
    let columns = [column(c"id", 1), column(c"k", 5)];
    let part = |column| firn_key_part {
        column,
        kind: FIRN_PART_INT,
        prefix: 0,
        image_len: 4,
        desc: false,
        collation: null(),
    };
    let (id, k) = (part(0), part(1));
    let index = |name: &'static CStr, parts, unique| firn_index {
        name: name.as_ptr(),
        parts,
        part_count: 1,
        unique,
    };
    let indexes = [index(c"PRIMARY", &id, true), index(c"k", &k, false)];
    f(&firn_table_def {
        record_len: RECORD_LEN as u32,
        null_bytes: 1,
        columns: columns.as_ptr(),
        column_count: columns.len() as u32,
        indexes: indexes.as_ptr(),
        index_count: indexes.len() as u32,
        primary: 0,
        auto_increment: 0,
        optimistic: false,
        collator: null(),
        default_record: null(),
    })
}

/// A database with one session, which this thread alone uses.
struct Host {
    db: *mut firn_db,
    session: *mut firn_session,
    statement: u64,
}

impl Host {
    fn open(dir: &Path) -> Self {
        let dir = CString::new(dir.to_str().expect("UTF-8")).expect("no NUL");
        let config = firn_config {
            dir: dir.as_ptr(),
            block_cache_size: 8 << 20,
            // Small, so that flushes and compactions run all the time.
            memtable_size: 16 << 10,
            wal_segment_size: SEGMENT_SIZE,
            flush_log_at_trx_commit: 0,
            background_jobs: 1,
            // SAFETY: the structure holds integers, flags and pointers only. All zeros is a valid
            // value of each; it stands for the default, or for none.
            ..unsafe { zeroed() }
        };
        // SAFETY: the structure holds optional functions only, and zeros stand for none.
        let host: firn_host = unsafe { zeroed() };
        let (mut db, mut session) = (null_mut(), null_mut());
        // SAFETY: both structures are valid, and the handles may be written.
        unsafe {
            check(firn_open(&config, &host, &mut db));
            check(firn_session_new(db, null_mut(), 0, &mut session));
        }
        Self {
            db,
            session,
            statement: 0,
        }
    }

    fn create(&self) {
        let request = firn_foreign_key_request {
            checks: true,
            strict: true,
            table_label: c"`d`.`t`".as_ptr(),
            table_text: c"t".as_ptr(),
            // SAFETY: the structure holds integers, flags and pointers only; zeros stand for none.
            ..unsafe { zeroed() }
        };
        let (frm, version) = ([7; FRM_LEN], [9; 16]);
        // SAFETY: the database is open, and all that is pointed to lives during the call.
        check(with_definition(|definition| unsafe {
            firn_create_table(
                self.db,
                NAME,
                definition,
                frm.as_ptr(),
                frm.len(),
                version.as_ptr(),
                version.len(),
                1,
                &request,
            )
        }));
    }

    fn drop_table(&self) {
        // SAFETY: the handles are live, and this thread alone uses the session.
        check(unsafe { firn_drop_table(self.db, self.session, NAME, true, false) });
    }

    fn truncate(&self) {
        // SAFETY: as above.
        check(unsafe { firn_truncate_table(self.db, self.session, NAME, LOCK_TIMEOUT_US) });
    }

    fn open_table(&self) -> *mut firn_table {
        let mut table = null_mut();
        // SAFETY: the database is open, and the handle may be written.
        check(with_definition(|definition| unsafe {
            firn_table_open(self.db, NAME, definition, &mut table)
        }));
        table
    }

    /// `INSERT INTO t VALUES (NULL, k)`, as a transaction; `id` is the value that is generated.
    fn insert(&mut self, table: *mut firn_table, id: u32) {
        self.statement += 1;
        let mut record = [0; RECORD_LEN];
        record[1..5].copy_from_slice(&id.to_le_bytes());
        record[5..9].copy_from_slice(&77_u32.to_le_bytes());
        let mut duplicate = 0;
        // SAFETY: the handles are live, and this thread alone uses the session; the buffer has the
        // length of a record.
        unsafe {
            check(firn_begin_statement(
                self.session,
                self.statement,
                firn_isolation::FIRN_REPEATABLE_READ,
                LOCK_TIMEOUT_US,
                true,
            ));
            check(firn_insert(
                self.session,
                table,
                record.as_ptr(),
                0,
                &mut duplicate,
                null_mut(),
            ));
            firn_autoinc_raise(self.session, table, id.into());
            check(firn_commit(self.session));
        }
    }

    fn counters(&self) -> firn_counters {
        let mut counters = firn_counters::default();
        // SAFETY: the database is open, and the counters may be written.
        check(unsafe { firn_read_counters(self.db, &mut counters) });
        counters
    }

    fn close(self) {
        // SAFETY: both handles are live, and this is their last use.
        unsafe {
            firn_session_free(self.session);
            check(firn_close(self.db));
        }
    }
}

/// Number of files in a directory, and paths and lengths of the manifests there.
fn files(dir: &Path) -> (u64, Vec<(PathBuf, u64)>) {
    let (mut count, mut manifests) = (0, Vec::new());
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        count += 1;
        // The engine may remove the file between the listing and this call.
        if let (true, Ok(metadata)) = (name.starts_with("MANIFEST-"), entry.metadata()) {
            manifests.push((entry.path(), metadata.len()));
        }
    }
    (count, manifests)
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.expect("kilobytes").parse::<u64>().expect("a number") << 10
}

/// A tenth of the statements: its costs, and the maxima of its samples.
#[derive(Clone, Copy, Default)]
struct Tenth {
    statements: u64,
    /// For the reader of the output only.
    us: u64,
    log_bytes: u64,
    written_bytes: u64,
    /// Growth of manifests, without the first records of new ones.
    edit_bytes: u64,
    manifest_bytes_max: u64,
    memory_bytes_max: u64,
    resident_bytes_max: u64,
    files_max: u64,
}

/// The newest manifest.
struct Manifest {
    path: PathBuf,
    len: u64,
}

impl Manifest {
    fn newest(dir: &Path) -> Self {
        let (path, len) = files(dir).1.into_iter().max().expect("a manifest");
        Self { path, len }
    }

    /// How much longer it is than at the last call: the bytes of edits. When the engine has removed
    /// it, the next one takes its place.
    fn grown(&mut self, dir: &Path) -> u64 {
        let Ok(metadata) = self.path.metadata() else {
            *self = Self::newest(dir);
            return 0;
        };
        let before = std::mem::replace(&mut self.len, metadata.len());
        self.len - before
    }
}

/// Runs `statements` statements with `one`, and measures each tenth of them.
fn measure(
    host: &mut Host,
    dir: &Path,
    statements: u64,
    mut one: impl FnMut(&mut Host),
) -> Vec<Tenth> {
    let clock = PosixEnv::new();
    let (mut tenths, mut manifest) = (Vec::new(), Manifest::newest(dir));
    println!("us, log, written and edits are of one statement, the others maxima, bytes");
    println!("    us    log  written  edits  manifests    memory   resident  files");
    for _ in 0..10 {
        let mut tenth = Tenth::default();
        let (begun_us, before) = (clock.monotonic_micros(), host.counters());
        for _ in 0..SAMPLES {
            for _ in 0..statements / 10 / SAMPLES {
                tenth.statements += 1;
                one(host);
                tenth.edit_bytes += manifest.grown(dir);
            }
            let (count, manifests) = files(dir);
            let manifest_bytes = manifests.iter().map(|(_, len)| len).sum();
            let now = host.counters();
            tenth.manifest_bytes_max = tenth.manifest_bytes_max.max(manifest_bytes);
            let memory = now.memory_bytes - now.block_cache_bytes;
            tenth.memory_bytes_max = tenth.memory_bytes_max.max(memory);
            tenth.resident_bytes_max = tenth.resident_bytes_max.max(resident());
            tenth.files_max = tenth.files_max.max(count);
        }
        let after = host.counters();
        tenth.us = clock.monotonic_micros() - begun_us;
        tenth.log_bytes = after.wal_bytes_written - before.wal_bytes_written;
        tenth.written_bytes = after.bytes_written - before.bytes_written;
        println!(
            "{:6} {:6} {:8} {:6} {:10} {:9} {:10} {:6}",
            tenth.us / tenth.statements,
            tenth.log_bytes / tenth.statements,
            tenth.written_bytes / tenth.statements,
            tenth.edit_bytes / tenth.statements,
            tenth.manifest_bytes_max,
            tenth.memory_bytes_max,
            tenth.resident_bytes_max,
            tenth.files_max,
        );
        tenths.push(tenth);
    }
    tenths
}

/// The last tenth costs what the second one has cost. The first one still fills memory.
fn check_flat(tenths: &[Tenth]) {
    let (second, last) = (tenths[1], tenths[9]);
    let flat = |of: fn(&Tenth) -> u64, what: &str, room: u64| {
        let (before, now) = (of(&second), of(&last));
        assert!(now <= before + room, "{what}: {now}, before {before}");
    };
    // Each sync fills up a block of 4 KiB, and flushes fall into one tenth or the other.
    flat(|t| t.log_bytes / t.statements, "log", 256);
    // New segments of the log are filled with zeros, until there are enough to be used again.
    let room = 1024 * second.statements;
    flat(|t| t.written_bytes, "written", room + 4 * SEGMENT_SIZE);
    // A short run has few edits, of flushes and of compactions.
    let (before, room) = (second.edit_bytes, 8 * second.statements);
    flat(|t| t.edit_bytes, "edits", before + room);
    flat(|t| t.memory_bytes_max, "memory", 2 << 20);
    flat(|t| t.resident_bytes_max, "resident", 8 << 20);
    flat(|t| t.files_max, "files", 40);
    let manifests = tenths.iter().map(|t| t.manifest_bytes_max).max();
    assert!(manifests <= Some(4 << 20), "{manifests:?}");
}

/// A start after `statements` finds one table with one row, and a short manifest. It has the time
/// of each of the last 4096 flushes, and nothing else of tables that are gone.
fn check_reopened(dir: &Path, statements: u64) {
    let host = Host::open(dir);
    let table = host.open_table();
    // SAFETY: the table is live.
    assert_eq!(unsafe { firn_autoinc_next_value(table) }, 2);
    // SAFETY: the handle is not used afterwards.
    unsafe { firn_table_close(table) };
    let (_, manifests) = files(dir);
    let [(_, len)] = manifests[..] else {
        panic!("{manifests:?}");
    };
    println!("the manifest of the next start has {len} bytes");
    let times = (2 * statements).min(4096 * 24);
    assert!(len < (4 << 10) + times, "{len}");
    host.close();
}

/// 2000 `TRUNCATE`s, each after an `INSERT`.
#[test]
fn truncates_cost_the_same_at_last() {
    let _alone = ONE_AT_A_TIME.lock();
    let statements = count_of("FIRN_TEST_TRUNCATES", 2000);
    let dir = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(dir.path());
    host.create();
    let table = host.open_table();
    let tenths = measure(&mut host, dir.path(), statements, |host| {
        host.insert(table, 1);
        host.truncate();
    });
    host.insert(table, 1);
    // SAFETY: the handle is not used afterwards.
    unsafe { firn_table_close(table) };
    host.close();
    check_flat(&tenths);
    check_reopened(dir.path(), statements);
}

/// 500 pairs of `CREATE` and `DROP`, with an `INSERT` between them.
#[test]
fn creates_and_drops_cost_the_same_at_last() {
    let _alone = ONE_AT_A_TIME.lock();
    let statements = count_of("FIRN_TEST_CREATES", 500);
    let dir = tempfile::tempdir().expect("a directory");
    let mut host = Host::open(dir.path());
    let create = |host: &mut Host| {
        host.create();
        let table = host.open_table();
        host.insert(table, 1);
        // SAFETY: the handle is not used afterwards.
        unsafe { firn_table_close(table) };
    };
    let tenths = measure(&mut host, dir.path(), statements, |host| {
        create(host);
        host.drop_table();
    });
    create(&mut host);
    host.close();
    check_flat(&tenths);
    check_reopened(dir.path(), statements);
}
