//! The pool over the simulated network.

mod faults;
mod hot;
mod model;
mod news;
mod outlook;

use super::*;
use crate::class::Admission;
use crate::mem::MemPool;
use crate::node_list::Address;
use crate::random::mixed;
use crate::value::Stored;

const A: &str = "a:1";
const B: &str = "b:1";
const MIB: u64 = 1 << 20;

/// A pool, and the network that its nodes are in.
struct World {
    network: Arc<MemPool>,
    pool: Pool,
    log: Arc<Mutex<Vec<String>>>,
}

impl World {
    /// A pool with these nodes, which are up.
    fn new(nodes: &[&str]) -> Self {
        let network = Arc::new(MemPool::new(1));
        nodes.iter().for_each(|node| network.start(node, 64 * MIB));
        let world = Self::over(
            &network,
            Options {
                server: 1,
                ..Options::new(1)
            },
        );
        world.pool.set_nodes(&nodes.join(",")).unwrap();
        world.pool.set_enabled(true);
        world.pool.tick();
        world
    }

    /// A pool without nodes on a network that exists.
    fn over(network: &Arc<MemPool>, options: Options) -> Self {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = log.clone();
        let sink: Log = Arc::new(move |message| sink.lock().push(message.to_owned()));
        let pool = Pool::new(options, network.clone(), network.clone(), sink).unwrap();
        Self {
            network: network.clone(),
            pool,
            log,
        }
    }

    fn put(&self, blocks: std::ops::Range<u64>) {
        for n in blocks {
            assert!(self.pool.put(&name(n), Class::Point, &content(n)));
        }
        self.pool.tick();
    }

    fn get(&self, n: u64) -> Option<Stored> {
        let found = self
            .pool
            .get(&wanted(n), Class::Point, &|bytes| bytes == content(n));
        assert!(found.as_deref().is_none_or(|bytes| bytes == content(n)));
        found
    }

    /// How many of these blocks the pool has.
    fn hits(&self, blocks: std::ops::Range<u64>) -> usize {
        blocks.filter(|n| self.get(*n).is_some()).count()
    }

    /// Orders and bytes in the queue of puts.
    fn shared_queue(&self) -> (usize, usize) {
        self.pool.shared.queue.len()
    }

    /// Background work for so many microseconds.
    fn pass(&self, us: u64) {
        let end_us = self.network.now_us() + us;
        while self.network.now_us() < end_us {
            let pause_us = self.pool.tick();
            self.network.advance(pause_us);
        }
    }
}

fn name(n: u64) -> Name {
    Name::of_block(n, 7, 0)
}

fn content(n: u64) -> Vec<u8> {
    mixed(n + 1).to_le_bytes().repeat(12)
}

fn wanted(n: u64) -> WantedBlock {
    WantedBlock {
        name: name(n),
        len: content(n).len(),
    }
}

#[test]
fn a_get_returns_what_was_put() {
    let world = World::new(&[A, B]);
    world.put(0..200);
    assert_eq!(world.hits(0..200), 200);
    assert!(world.network.items(A) > 50 && world.network.items(B) > 50);
    let stats = world.pool.stats();
    let point = |field: fn(&crate::ClassStats) -> u64| -> u64 {
        stats
            .nodes
            .iter()
            .map(|node| field(&node.classes[Class::Point.index()]))
            .sum()
    };
    assert_eq!(
        (point(|c| c.puts), point(|c| c.gets), point(|c| c.hits)),
        (200, 200, 200)
    );
    assert_eq!(
        (point(|c| c.put_bytes), point(|c| c.hit_bytes)),
        (19_200, 19_200)
    );
    assert_eq!(stats.fingerprints, 200);
}

#[test]
fn a_batch_returns_each_block_at_its_place() {
    let world = World::new(&[A, B]);
    world.put(0..150);
    let blocks: Vec<_> = (0..300).rev().step_by(2).map(wanted).collect();
    let found = world.pool.get_many(&blocks, Class::Scan, &|_, _| true);
    for (at, n) in (0..300).rev().step_by(2).enumerate() {
        assert_eq!(
            found[at].as_deref(),
            (n < 150).then(|| content(n)).as_deref(),
            "block {n}"
        );
    }
    assert!(
        world
            .pool
            .get_many(&[], Class::Scan, &|_, _| true)
            .is_empty()
    );
}

#[test]
fn a_block_that_nobody_put_asks_no_node() {
    let world = World::new(&[A]);
    world.put(0..10);
    let gets = world.network.gets(A);
    assert_eq!(world.hits(1000..3000), 0);
    let unknown = world.pool.stats().skips[Class::Point.index()].unknown;
    assert!(unknown >= 1998 && world.network.gets(A) - gets == 2000 - unknown);
}

#[test]
fn a_miss_is_asked_for_once() {
    let world = World::new(&[A]);
    world.put(0..100);
    world.network.evict_all(A);
    let gets = world.network.gets(A);
    assert_eq!(world.hits(0..100), 0);
    assert_eq!(world.hits(0..100), 0);
    assert_eq!(world.network.gets(A) - gets, 100);
}

#[test]
fn a_pool_that_is_off_or_without_nodes_does_nothing() {
    let world = World::new(&[A]);
    world.put(0..10);
    let gets = world.network.gets(A);
    world.pool.set_enabled(false);
    assert!(!world.pool.put(&name(11), Class::Point, &content(11)));
    assert!(!world.pool.offer(&name(11), Class::Index, &content(11)));
    assert_eq!((world.hits(0..10), world.network.gets(A)), (0, gets));
    world.pool.tick();
    world.pool.set_enabled(true);
    world.pool.tick();
    assert_eq!(world.hits(0..10), 10, "values survive");
    world.pool.set_nodes("").unwrap();
    assert_eq!(world.hits(0..10), 0);
    assert!(!world.pool.offer(&name(11), Class::Index, &content(11)));
    assert!(world.pool.set_nodes("nonsense").is_err());
}

#[test]
fn deleted_blocks_are_gone() {
    let world = World::new(&[A]);
    world.put(0..20);
    (0..10).for_each(|n| world.pool.delete(&name(n), Class::Point));
    assert_eq!(world.hits(0..10), 0, "at once");
    world.pool.tick();
    assert_eq!(world.network.items(A), 10 + 1, "and a page of news");
    assert_eq!(world.hits(0..20), 10);
}

/// Loads a block once and again, and tells at which load the pool took it: 0 for never.
fn taken_at(world: &World, class: Class, n: u64) -> usize {
    (1..=2)
        .find(|_| world.pool.offer(&name(n), class, &content(n)))
        .unwrap_or(0)
}

#[test]
fn each_class_is_admitted_by_its_rule() {
    let world = World::new(&[A]);
    for (n, class) in (0..).zip(Class::ALL) {
        let expected = match class.admission() {
            Admission::First | Admission::FirstWhileRoom => 1,
            Admission::Second => 2,
            Admission::Never => 0,
        };
        assert_eq!(taken_at(&world, class, n), expected, "{}", class.name());
    }
    assert!(!world.pool.put(&name(9), Class::Maintenance, &content(9)));
}

#[test]
fn a_full_node_takes_the_second_load() {
    let world = World::new(&[A]);
    world.network.start(A, 20_000);
    world.pass(10_000_000);
    world.put(0..300);
    world.pass(10_000_000);
    let stats = world.pool.stats();
    assert!(stats.nodes[0].used_bytes > 15_000 && stats.nodes[0].evictions > 0);
    assert_eq!(taken_at(&world, Class::Point, 1000), 2);
    assert_eq!(taken_at(&world, Class::Index, 1001), 1);
    world.pool.offer(&name(1002), Class::Point, &content(1002));
    world.network.advance(601_000_000);
    assert!(
        !world.pool.offer(&name(1002), Class::Point, &content(1002)),
        "out of the window"
    );
}

#[test]
fn blocks_of_a_scan_expire() {
    let world = World::new(&[A]);
    assert!(world.pool.put(&name(1), Class::Scan, &content(1)));
    world.put(2..3);
    assert_eq!(world.hits(1..3), 2);
    world.network.advance(600_000_001);
    assert_eq!((world.hits(1..2), world.hits(2..3)), (0, 1));
}

#[test]
fn a_full_queue_drops_and_counts() {
    let world = World::new(&[A]);
    let large = vec![1; 900_000];
    let taken = (0..30)
        .filter(|n| world.pool.offer(&name(*n), Class::Index, &large))
        .count();
    assert_eq!(taken, 18);
    let stats = world.pool.stats();
    assert_eq!(
        stats.nodes[0].classes[Class::Index.index()].dropped_puts,
        12
    );
    assert_eq!(stats.queued_puts, 18);
    assert!(
        !world.pool.put(&name(99), Class::Point, &vec![1; 1 << 20]),
        "too large for a node"
    );
    world.pool.tick();
    assert_eq!(world.pool.stats().queued_puts, 0);
}

#[test]
fn a_class_that_does_not_pay_stops_asking() {
    let world = World::new(&[A]);
    world.put(0..640);
    for n in 0..320 {
        world.get(n);
    }
    world.pool.note_file_read(Class::Point, 5);
    let hits = world.hits(320..640);
    assert_eq!(hits, 10, "one in 32 finds out when it pays again");
    assert_eq!(
        world.pool.stats().skips[Class::Point.index()].unprofitable,
        310
    );
    world.pool.note_file_read(Class::Point, 1_000_000);
    assert_eq!(world.hits(320..640), 320);
}

#[test]
fn a_new_node_takes_its_share_and_nothing_else_is_lost() {
    let world = World::new(&[A, B]);
    world.put(0..300);
    world.network.start("c:1", 64 * MIB);
    world.pool.set_nodes("c:1, a:1, b:1").unwrap();
    world.pool.tick();
    let hits = world.hits(0..300);
    assert!(hits > 170 && hits < 230, "{hits}");
    assert_eq!(world.pool.stats().nodes.len(), 3);
    world.pool.set_nodes("a:1,b:1").unwrap();
    world.put(300..310);
    assert_eq!(world.hits(300..310), 10);
}

#[test]
fn a_pool_with_another_key_gets_nothing() {
    let network = Arc::new(MemPool::new(1));
    network.start(A, 64 * MIB);
    let world = |digit: &str| {
        let key = crate::Key::parse(&digit.repeat(64)).ok();
        let world = World::over(
            &network,
            Options {
                key,
                ..Options::new(1)
            },
        );
        world.pool.set_nodes(A).unwrap();
        world.pool.set_enabled(true);
        world.pool.tick();
        world
    };
    let (one, same, other) = (world("1"), world("1"), world("2"));
    one.put(0..10);
    for world in [&same, &other] {
        (0..10).for_each(|n| {
            world
                .pool
                .shared
                .known
                .insert(name(n).masked(&world.pool.shared.name_mask).short())
        });
    }
    assert_eq!(
        (one.hits(0..10), same.hits(0..10), other.hits(0..10)),
        (10, 10, 0)
    );
    let lying = other.pool.stats().nodes[0].classes[Class::Point.index()].lying;
    assert_eq!(lying, 0, "names do not meet");
    other.pool.tick();
    assert_eq!(one.hits(0..10), 10);
}

#[test]
fn the_table_has_the_size_of_the_nodes_memory() {
    let world = World::new(&[A, B]);
    let blocks = 128 * MIB / 7000;
    let bytes = world.pool.stats().fingerprint_bytes;
    assert!(bytes as f64 >= blocks as f64 * 2.1 && (bytes as f64) < blocks as f64 * 2.5);
    let address = Address::Tcp("a".into(), 1);
    assert_eq!(
        world.pool.shared.ring.load().nodes()[0].spec.address,
        address
    );
}

#[test]
fn the_thread_does_the_background_work_and_ends() {
    let network = Arc::new(MemPool::new(1));
    network.start(A, 64 * MIB);
    let world = World::over(&network, Options::new(1));
    world.pool.set_nodes(A).unwrap();
    world.pool.set_enabled(true);
    world.pool.start().unwrap();
    world.pool.start().unwrap();
    while world.pool.stats().nodes[0].breaker_open {
        std::thread::yield_now();
    }
    assert!(world.pool.put(&name(1), Class::Point, &content(1)));
    while world.get(1).is_none() {
        std::thread::yield_now();
    }
    world.pool.stop();
    world.pool.stop();
    assert!(world.get(1).is_none());
}
