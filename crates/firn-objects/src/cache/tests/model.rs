//! Random operations under all faults: every read returns the bytes of its object.

use super::*;

struct World {
    bench: Bench,
    random: SplitMix64,
    /// The objects and their sizes.
    sizes: Vec<(String, u64)>,
    objects_made: u64,
    reads: u64,
    failed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            bench: Bench::new(seed, 2 * MIB),
            random: SplitMix64::new(seed ^ 0x5eed),
            sizes: Vec::new(),
            objects_made: 0,
            reads: 0,
            failed: 0,
        };
        for _ in 0..4 {
            world.make();
        }
        let faults = Faults {
            // The caller checks all that arrives whole; a few bits in a chunk are many errors.
            flip_read: 40,
            timeout_us: 1_000_000,
            ..Faults::all(20)
        };
        world.bench.objects.set_faults(faults);
        world
    }

    fn make(&mut self) {
        self.objects_made += 1;
        let name = format!("sst/{:02}/{}", self.objects_made % 7, self.objects_made);
        let bytes = match self.random.below(4) {
            0 => self.random.below(3 * BLOCK),
            1 => (1 + self.random.below(4)) * CHUNK_BYTES,
            _ => self.random.below(2 * MIB),
        };
        self.bench.put(&name, bytes);
        self.sizes.push((name, bytes));
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..60 => self.read(),
            60..68 => self.scan(),
            68..76 => {
                self.bench.jobs.run_one();
            }
            76..80 => self.bench.cache.set_bytes_max(self.random.below(4 * MIB)),
            80..84 => self.replace(),
            84..88 => self.damage(),
            88..90 => self.bench.files.set_room(self.random.below(30)),
            90..93 => self.bench.files.set_room(u64::MAX),
            93..95 => self.bench.objects.go_out(self.random.below(90_000_000)),
            _ => self.die(),
        }
    }

    fn pick(&mut self) -> (CachedFile, Bytes) {
        let at = self.random.below(self.sizes.len() as u64) as usize;
        let (name, bytes) = self.sizes[at].clone();
        let tail = self.random.below(bytes + 1).min(self.random.below(MIB));
        let is_hot = self.random.per_mille(300);
        let file = self.bench.file_with(&name, bytes, tail, is_hot);
        let all = content(&name, bytes);
        (file, all)
    }

    fn range(&mut self, bytes: u64) -> Range<u64> {
        let start = self.random.below(bytes.div_ceil(BLOCK).max(1)) * BLOCK;
        let most = if self.random.per_mille(800) { 8 } else { 300 };
        start.min(bytes)..(start + (1 + self.random.below(most)) * BLOCK).min(bytes)
    }

    fn read(&mut self) {
        let (file, all) = self.pick();
        let range = self.range(file.bytes());
        let verify = |bytes: &[u8]| blocks_are_good(file.name(), range.start, bytes);
        let got = match self.random.below(10) {
            0 => file.read_past_cache(range.clone(), &verify),
            1 => {
                file.will_read(range.clone());
                return;
            }
            _ => file.read(range.clone(), &verify).map(|read| read.bytes),
        };
        self.judge(got, &all[range.start as usize..range.end as usize]);
    }

    fn scan(&mut self) {
        let (file, all) = self.pick();
        let mut scan = file.scan();
        let mut at = self.range(file.bytes()).start;
        while at < file.bytes() {
            let end = file.bytes().min(at + 16 * BLOCK);
            let got = scan.read(at..end, &|bytes| blocks_are_good(file.name(), at, bytes));
            let got = got.map(|read| read.bytes);
            self.judge(got, &all[at as usize..end as usize]);
            at = end;
            if self.random.per_mille(500) {
                self.bench.jobs.run_one();
            }
            if self.random.per_mille(30) {
                break;
            }
        }
    }

    fn judge(&mut self, got: Result<Vec<u8>>, expected: &[u8]) {
        self.reads += 1;
        match got {
            Ok(bytes) => assert!(bytes == expected, "wrong bytes"),
            Err(error) => {
                assert!(error.kind().passes(), "{error}");
                self.failed += 1;
                // In an outage reads fail at once. Who reads again comes later.
                self.bench.clock.sleep_us(10_000_000);
            }
        }
    }

    /// A compaction: an object goes, and one comes.
    fn replace(&mut self) {
        let at = self.random.below(self.sizes.len() as u64) as usize;
        let (name, _) = self.sizes.swap_remove(at);
        self.bench.cache.forget(&name);
        while self.bench.store.delete(&name).is_err() {}
        // An outage may outlast the deadline of a put.
        self.bench.objects.go_out(0);
        self.make();
    }

    fn damage(&mut self) {
        let names = self.bench.cache.names();
        if let Some(name) = names.first() {
            let path = self.bench.cache.0.local_path(name);
            self.bench.files.damage(&path, self.random.below(MIB));
        }
    }

    /// The process dies somewhere in the next operations.
    fn die(&mut self) {
        self.bench.files.set_fuse(self.random.below(12));
        for _ in 0..self.random.below(6) {
            self.read();
        }
        if self.random.per_mille(500) {
            self.bench.files.crash();
        } else {
            self.bench.files.kill();
        }
        self.bench.files.set_room(u64::MAX);
        let bytes_max = self.random.below(4 * MIB);
        self.bench.reopen(bytes_max);
        // The database forgets what it does not name.
        for name in self.bench.cache.names() {
            if !self.sizes.iter().any(|(named, _)| *named == name) {
                self.bench.cache.forget(&name);
            }
        }
        self.bench.check_room();
    }
}

#[test]
fn every_read_returns_the_bytes_of_its_object() {
    let (mut reads, mut failed) = (0, 0);
    for seed in 0..crate::mem::seeds(25) {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..150 {
                world.step();
                world.bench.check_room();
                assert_eq!(world.bench.cache.0.in_flight.taken(), 0);
                assert_eq!(world.bench.cache.0.flights.len(), 0);
            }
            (world.reads, world.failed)
        });
        let (more, more_failed) = run.unwrap_or_else(|_| panic!("seed {seed}"));
        reads += more;
        failed += more_failed;
    }
    // Outages fail some reads. Most succeed, or this shows nothing.
    assert!(failed * 10 < reads, "{failed} of {reads} have failed");
}
