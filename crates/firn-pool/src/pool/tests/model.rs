//! Random operations of two servers on nodes with all faults. Whatever happens, a get returns
//! exactly what was put under the name, or nothing.

use super::*;
use crate::mem::Faults;
use crate::node::DEADLINE_US_MAX;
use crate::random::SplitMix64;
use xxhash_rust::xxh3::xxh3_64;

const NODES: [&str; 3] = ["a:1", "b:1", "unix:/c"];
const BLOCKS: u64 = 120;
const OPERATIONS: u64 = 4000;

/// Bytes with a checksum at their end, as blocks have one. It does not cover the name, so only the
/// pool can tell a block from another of the same length.
fn block(n: u64) -> Vec<u8> {
    let mut bytes = mixed(n + 1)
        .to_le_bytes()
        .repeat(if n.is_multiple_of(7) { 300 } else { 12 });
    bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    bytes
}

fn is_block(bytes: &[u8]) -> bool {
    let (bytes, checksum) = bytes.split_at(bytes.len().saturating_sub(8));
    xxh3_64(bytes).to_le_bytes() == checksum
}

fn wanted(n: u64) -> WantedBlock {
    WantedBlock {
        name: name(n),
        len: block(n).len(),
    }
}

struct Run {
    network: Arc<MemPool>,
    servers: Vec<World>,
    random: SplitMix64,
    /// Encryption finds changed bits; without it the engine's checksum does.
    encrypted: bool,
    hits: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let network = Arc::new(MemPool::new(seed));
        NODES.iter().for_each(|node| network.start(node, 200_000));
        let encrypted = seed.is_multiple_of(2);
        let server = |server| {
            let key = encrypted.then(|| crate::Key::parse(&"7".repeat(64)).unwrap());
            let options = Options {
                server,
                key,
                first_touches: 256,
                ..Options::new(1)
            };
            let world = World::over(&network, options);
            world.pool.set_nodes(&NODES.join(",")).unwrap();
            world.pool.set_enabled(true);
            world
        };
        let servers = vec![server(1), server(2)];
        Self {
            network,
            servers,
            random: SplitMix64::new(seed),
            encrypted,
            hits: 0,
        }
    }

    fn is_right(&self, bytes: &[u8]) -> bool {
        self.encrypted || is_block(bytes)
    }

    fn class(&mut self) -> Class {
        Class::ALL[self.random.below(6) as usize]
    }

    fn step(&mut self) {
        let pick = self.random.below(self.servers.len() as u64) as usize;
        let class = self.class();
        let n = self.random.below(BLOCKS);
        let node = NODES[self.random.below(3) as usize];
        let start_us = self.network.now_us();
        let world = &self.servers[pick];
        match self.random.below(1000) {
            0..450 => {
                let found = world
                    .pool
                    .get(&wanted(n), class, &|bytes| self.is_right(bytes));
                match found {
                    Some(found) => {
                        assert_eq!(&*found, block(n), "block {n}");
                        self.hits += 1;
                    }
                    None => {
                        world.pool.offer(&name(n), class, &block(n));
                    }
                }
                let us = self.network.now_us() - start_us;
                assert!(us < DEADLINE_US_MAX + 100, "a get took {us} us");
            }
            450..550 => {
                let blocks: Vec<u64> = (n..n + 1 + self.random.below(30))
                    .map(|n| n % BLOCKS)
                    .collect();
                let wanted: Vec<_> = blocks.iter().map(|n| wanted(*n)).collect();
                let found = world
                    .pool
                    .get_many(&wanted, class, &|_, bytes| self.is_right(bytes));
                for (n, found) in blocks.iter().zip(&found) {
                    if let Some(found) = found {
                        assert_eq!(**found, block(*n), "block {n} in a batch");
                        self.hits += 1;
                    }
                }
                let us = self.network.now_us() - start_us;
                assert!(us < DEADLINE_US_MAX + 300, "a batch took {us} us");
            }
            550..700 => {
                world.pool.put(&name(n), class, &block(n));
            }
            700..720 => world.pool.delete(&name(n), class),
            720..725 => self.network.kill(node),
            725..735 => self.network.start(node, 200_000),
            735..740 => self.network.stop(node),
            740..760 => self.network.resume(node),
            760..763 => self.network.evict_all(node),
            763..775 => {
                let [lies, breaks] = [200, 8].map(|end| self.random.below(end) as u32);
                self.network.set_faults(node, Faults::all(lies, breaks));
            }
            775..785 => self.network.set_faults(node, Faults::default()),
            785..790 => {
                let list = if n.is_multiple_of(3) {
                    NODES[..2].join(",")
                } else {
                    NODES.join(",")
                };
                world.pool.set_nodes(&list).unwrap();
            }
            790..793 => world.pool.set_enabled(!n.is_multiple_of(8)),
            _ => {
                let pause_us = world.pool.tick();
                self.network.advance(pause_us.min(50_000));
            }
        }
    }

    /// All faults end: within the longest pause of a breaker every node serves again.
    fn recover(&mut self) {
        for node in NODES {
            self.network.resume(node);
            self.network.start(node, 4 * MIB);
        }
        for world in &self.servers {
            world.pool.set_nodes(&NODES.join(",")).unwrap();
            world.pool.set_enabled(true);
            // Connections of killed nodes are found at their next use.
            for _ in 0..2 {
                world.pass(12_000_000);
                for n in 0..BLOCKS {
                    world.pool.put(&name(n), Class::Point, &block(n));
                }
                world.pool.tick();
                (0..BLOCKS).for_each(|n| drop(world.pool.get(&wanted(n), Class::Point, &is_block)));
            }
            for n in 0..BLOCKS {
                world.pool.put(&name(n), Class::Point, &block(n));
            }
            world.pool.tick();
            let hits = (0..BLOCKS)
                .filter(|n| {
                    let found = world.pool.get(&wanted(*n), Class::Point, &is_block);
                    found.is_some_and(|found| *found == block(*n))
                })
                .count() as u64;
            let node = |node: &crate::NodeStats| (node.breaker_open, node.latency_us);
            let nodes: Vec<_> = world.pool.stats().nodes.iter().map(node).collect();
            assert_eq!(hits, BLOCKS, "{nodes:?}");
        }
    }
}

fn run(seed: u64) -> (u64, u64, Vec<PoolStats>) {
    let mut run = Run::new(seed);
    for _ in 0..OPERATIONS {
        run.step();
    }
    let hits = run.hits;
    run.recover();
    let stats = run.servers.iter().map(|world| world.pool.stats()).collect();
    (hits, run.network.now_us(), stats)
}

#[test]
fn a_get_returns_exactly_what_was_put_or_nothing() {
    let (mut hits, mut lying, mut late, mut broken) = (0, 0, 0, 0);
    for seed in 1..=20 {
        let caught = std::panic::catch_unwind(|| run(seed));
        let (found, _, stats) = caught.unwrap_or_else(|_| panic!("seed {seed} failed"));
        hits += found;
        for class in stats
            .iter()
            .flat_map(|s| &s.nodes)
            .flat_map(|node| &node.classes)
        {
            lying += class.lying;
            late += class.late;
            broken += class.broken;
        }
    }
    // The faults were there, and the pool was of use all the same.
    assert!(hits > 2000, "{hits}");
    assert!(
        lying > 200 && late > 100 && broken > 100,
        "{lying} {late} {broken}"
    );
}

#[test]
fn a_seed_repeats_its_run() {
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).1, run(5).1);
}
