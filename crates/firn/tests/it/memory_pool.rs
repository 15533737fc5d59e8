//! Databases with a memory pool, whose nodes are simulated.

use firn::base::Value;
use firn::base::options::Options;
use firn::db::{Attached, Db, MemoryPool};
use firn::env::{Env, MemEnv, ReadClass};
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ScanRange, multi_get, scan_sources};
use firn::txn::{Isolation, Transaction};
use firn_pool::mem::{Faults, MemPool};
use firn_pool::{Pool, SplitMix64};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

mod faults;
mod forks;
mod handover;

const NODES: [&str; 3] = ["a:1", "b:1", "unix:/c"];
const MIB: u64 = 1 << 20;
const KEYS: u64 = 2000;

/// A server: its database, and what it must hold.
struct Server {
    env: MemEnv,
    network: Arc<MemPool>,
    db: Arc<Db>,
    rows: BTreeMap<u64, Vec<u8>>,
    number: u64,
}

fn network(seed: u64) -> Arc<MemPool> {
    let network = Arc::new(MemPool::new(seed));
    NODES.iter().for_each(|node| network.start(node, 64 * MIB));
    network
}

fn key(n: u64) -> Vec<u8> {
    [&7u32.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

fn open(env: &MemEnv, network: &Arc<MemPool>, number: u64) -> Arc<Db> {
    // A read of a file takes longer than an answer of a node.
    env.set_read_us(500);
    let options = Options {
        background_jobs: 0,
        block_cache_size: 32 << 10,
        row_cache_size: 0,
        block_size: 512,
        target_file_size: 64 << 10,
        base_level_size: 64 << 10,
        wal_segment_size: 1 << 16,
        frozen_memtables_max: 1000,
        ..Options::default()
    };
    let pool_options = firn_pool::Options {
        first_touches: 4096,
        cores: 2,
        ..firn_pool::Options::new(number)
    };
    let log: firn_pool::Log = Arc::new(|_: &str| ());
    let pool = Pool::new(pool_options, network.clone(), network.clone(), log).unwrap();
    let pool = MemoryPool::without_thread(pool);
    let env: Arc<dyn Env> = Arc::new(env.clone());
    let attached = Attached {
        pool: Some(pool),
        ..Attached::default()
    };
    let db = Db::open_with(env, Path::new("/db"), options, None, attached).unwrap();
    db.set_pool_nodes(&NODES.join(",")).unwrap();
    db.set_pool_enabled(true).unwrap();
    db
}

impl Server {
    fn new(network: &Arc<MemPool>) -> Self {
        Self::on(MemEnv::new(), network, 1, BTreeMap::new())
    }

    fn on(env: MemEnv, network: &Arc<MemPool>, number: u64, rows: BTreeMap<u64, Vec<u8>>) -> Self {
        let db = open(&env, network, number);
        let server = Self {
            env,
            network: network.clone(),
            db,
            rows,
            number,
        };
        server.tick();
        server
    }

    /// Opens the database again, with a pool that knows nothing yet.
    fn restart(&mut self) {
        self.db.close().unwrap();
        self.env = self.env.kill();
        self.db = open(&self.env, &self.network, self.number);
        self.tick();
    }

    /// The background work of the pool.
    fn tick(&self) {
        for _ in 0..3 {
            self.db.memory_pool().unwrap().pool().tick();
        }
    }

    /// Lets time pass, so that news are written and read.
    fn wait(&self, seconds: u64) {
        for _ in 0..seconds {
            self.network.advance(1_000_000);
            self.tick();
        }
    }

    fn begin(&self) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
        txn
    }

    /// Gives these keys values; `None` deletes.
    fn write(&mut self, changes: &[(u64, Option<Vec<u8>>)]) {
        let mut txn = self.begin();
        for (n, value) in changes {
            match value {
                Some(value) => {
                    txn.put(&key(*n), Value::split(value, b"")).unwrap();
                    self.rows.insert(*n, value.clone());
                }
                None => {
                    txn.delete(&key(*n)).unwrap();
                    self.rows.remove(n);
                }
            }
        }
        txn.commit().unwrap();
    }

    fn check_get(&self, n: u64, context: &str) {
        let mut txn = self.begin();
        let point = txn.read_point();
        let found = txn.get(&point, &key(n), ReadClass::Point, |key, value| {
            key.kind.is_put().then(|| value.head.to_vec())
        });
        let found = found.unwrap().flatten();
        assert_eq!(found.as_ref(), self.rows.get(&n), "row {n}, {context}");
    }

    fn check_batch(&self, wanted: &[u64], context: &str) {
        let keys: Vec<_> = wanted.iter().map(|n| key(*n)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let point = self.db.context().super_versions.latest();
        let found = multi_get(&point.super_version, &keys, point.seqno, |_, key, value| {
            key.kind.is_put().then(|| value.head.to_vec())
        });
        for (n, found) in wanted.iter().zip(found) {
            let found = found.unwrap().flatten();
            assert_eq!(
                found.as_ref(),
                self.rows.get(n),
                "row {n} of a batch, {context}"
            );
        }
    }

    fn check_range(&self, from: u64, to: u64, context: &str) {
        let point = self.db.context().super_versions.latest();
        let range = ScanRange {
            lower: key(from),
            upper: Some(key(to)),
        };
        let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
        let mut rows = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
        rows.set_bounds(Some(&range.lower), range.upper.as_deref());
        let mut on = rows.first().unwrap();
        for (n, value) in self.rows.range(from..to) {
            assert!(on, "row {n} is missing, {context}");
            assert_eq!(rows.user_key(), key(*n), "{context}");
            assert_eq!(rows.value().head, value, "row {n} of a range, {context}");
            on = rows.next().unwrap();
        }
        assert!(!on, "a row too many, {context}");
    }

    fn check_all(&self, context: &str) {
        self.check_range(0, KEYS, context);
    }

    /// Blocks that came from the pool, and reads of files for queries.
    fn reads(&self) -> (u64, u64) {
        let pool = self.db.pool_reads().map(|one| one.reads);
        let files = self.db.file_reads();
        let files = files.filter(|one| one.class.is_of_query());
        (pool.sum(), files.map(|one| one.reads).sum())
    }

    /// The change of [`Self::reads`] while `f` runs.
    fn reads_of(&self, f: impl FnOnce(&Self)) -> (u64, u64) {
        let before = self.reads();
        f(self);
        let after = self.reads();
        (after.0 - before.0, after.1 - before.1)
    }
}

fn bytes(random: &mut SplitMix64, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.draw() as u8).collect()
}

/// A server with all keys, in files of the last level.
fn filled(network: &Arc<MemPool>) -> Server {
    let mut random = SplitMix64::new(3);
    let mut server = Server::new(network);
    let rows: Vec<_> = (0..KEYS)
        .map(|n| (n, Some(bytes(&mut random, 90))))
        .collect();
    server.write(&rows);
    server.db.compact_all().unwrap();
    server
}

/// A class whose reads of files are faster than answers of nodes asks now and then only: blocks of
/// a batch are judged as a class of their own, by the times of single blocks.
#[test]
fn batches_do_not_ask_where_files_are_faster() {
    let network = network(6);
    let server = filled(&network);
    server.env.set_read_us(0);
    let batch = |first: u64| (0..30).map(|n| (first + n * 67) % KEYS).collect::<Vec<_>>();
    let asked_by = |rounds: std::ops::Range<u64>| {
        let before = gets(&network);
        for round in rounds {
            server.check_batch(&batch(round), "fast files");
            server.tick();
        }
        gets(&network) - before
    };
    // Single reads of blocks that no node has show how fast files are.
    for n in (0..KEYS).step_by(20) {
        server.check_range(n, n + 1, "fast files");
    }
    asked_by(0..60);
    let asked = asked_by(0..60);
    assert!(asked < 200, "{asked} of 1800");
    // Where files are slow they are asked for.
    server.env.set_read_us(500);
    for n in 0..KEYS {
        server.check_range(n, n + 1, "slow files");
    }
    let asked = asked_by(0..60);
    assert!(asked > 400, "{asked} of 1800");
}

fn gets(network: &MemPool) -> u64 {
    NODES.iter().map(|node| network.gets(node)).sum()
}

fn read_each(server: &Server) {
    // In an order in which no block is read twice in a row.
    (0..KEYS).for_each(|n| server.check_get(n * 777 % KEYS, "each"));
}

#[test]
fn reads_are_served_by_the_pool_and_off_nobody_is_asked() {
    let network = network(1);
    let server = filled(&network);
    let (pool, files) = server.reads_of(|server| {
        for n in 0..KEYS {
            server.check_get(n * 777 % KEYS, "cold");
            if n % 16 == 0 {
                server.tick();
            }
        }
    });
    assert!(
        files > 100 && pool > 0,
        "{pool} from the pool, {files} from files"
    );
    server.tick();
    let (pool, files) = server.reads_of(read_each);
    assert!(
        pool > 1000 && files * 20 < pool,
        "{pool} from the pool, {files} from files"
    );
    let stats = server.db.pool_stats().unwrap();
    let hits: u64 = stats
        .nodes
        .iter()
        .flat_map(|node| &node.classes)
        .map(|c| c.hits)
        .sum();
    assert!(hits > 1000);

    server.db.set_pool_enabled(false).unwrap();
    let before = gets(&network);
    let puts = NODES.map(|node| network.items(node));
    let (pool, files) = server.reads_of(read_each);
    server.tick();
    assert!(
        pool == 0 && files > 1000,
        "{pool} from the pool, {files} from files"
    );
    assert_eq!(gets(&network), before, "off, nobody is asked");
    assert_eq!(
        NODES.map(|node| network.items(node)),
        puts,
        "and nothing is put"
    );

    server.db.set_pool_enabled(true).unwrap();
    server.tick();
    let (pool, _) = server.reads_of(read_each);
    assert!(pool > 1000, "{pool} after it was on again");
}

#[test]
fn scans_and_batches_ask_for_many_blocks_at_once() {
    let network = network(2);
    let server = filled(&network);
    // Blocks of scans are taken at their second load.
    for round in 0..3 {
        server.check_all(&format!("scan {round}"));
        server.tick();
    }
    let before = gets(&network);
    let (pool, files) = server.reads_of(|server| server.check_all("from the pool"));
    assert!(
        pool > 100 && files * 4 < pool,
        "{pool} from the pool, {files} from files"
    );
    assert!(gets(&network) - before >= pool);
    read_each(&server);
    server.tick();
    let (pool, files) = server.reads_of(|server| {
        for n in 0..50 {
            let wanted: Vec<u64> = (0..32).map(|at| (n * 31 + at * 59) % KEYS).collect();
            server.check_batch(&wanted, "batch");
        }
    });
    assert!(
        pool > 500 && files * 10 < pool,
        "{pool} from the pool, {files} from files"
    );
    let stats = server.db.pool_stats().unwrap();
    let batched = firn_pool::Class::BatchedKeys.index();
    let hits: u64 = stats
        .nodes
        .iter()
        .map(|node| node.classes[batched].hits)
        .sum();
    assert!(hits > 400, "{hits} hits in batches");
}

#[test]
fn a_server_that_starts_finds_what_it_had_put_before() {
    let network = network(3);
    let mut server = filled(&network);
    read_each(&server);
    server.wait(3);
    server.restart();
    server.wait(5);
    let (pool, files) = server.reads_of(read_each);
    assert!(
        pool > 1000 && files * 3 < pool,
        "{pool} from the pool, {files} from files"
    );
}

#[test]
fn faulty_nodes_are_refused_and_a_database_without_a_pool_has_none() {
    let network = network(4);
    let server = Server::new(&network);
    let error = server.db.set_pool_nodes("a:1,a:1").unwrap_err();
    assert!(error.message().contains("listed twice"), "{error}");
    assert_eq!(
        server.db.pool_stats().unwrap().nodes.len(),
        3,
        "nothing has changed"
    );
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(env, Path::new("/db"), options, None).unwrap();
    assert!(db.pool_stats().is_none() && !db.is_pool_enabled());
    assert!(db.set_pool_enabled(true).is_err() && db.set_pool_nodes("a:1").is_err());
}
