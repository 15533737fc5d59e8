//! Random work on a database whose nodes lie, hang, die and come back. It holds what it would hold
//! without a pool, and no read fails.

use super::*;

struct Run {
    server: Server,
    random: SplitMix64,
    down: [bool; 3],
    context: String,
}

impl Run {
    fn new(seed: u64) -> Self {
        let network = network(seed);
        Self {
            server: filled(&network),
            random: SplitMix64::new(seed),
            down: [false; 3],
            context: format!("seed {seed}"),
        }
    }

    fn read(&mut self) {
        let (server, random) = (&self.server, &mut self.random);
        let n = random.below(KEYS);
        match random.below(4) {
            0 => server.check_range(n, n + random.below(300), &self.context),
            1 => {
                let wanted: Vec<u64> = (0..random.below(33)).map(|_| random.below(KEYS)).collect();
                server.check_batch(&wanted, &self.context);
            }
            _ => (0..20).for_each(|_| server.check_get(random.below(KEYS), &self.context)),
        }
    }

    fn write(&mut self) {
        let mut changes = Vec::new();
        for _ in 0..self.random.below(60) {
            let len = 20 + self.random.below(150);
            let value = bytes(&mut self.random, len);
            let n = self.random.below(KEYS);
            changes.push((n, (self.random.below(4) > 0).then_some(value)));
        }
        self.server.write(&changes);
    }

    fn disturb(&mut self) {
        let network = self.server.network.clone();
        let at = self.random.below(3) as usize;
        let node = NODES[at];
        match self.random.below(8) {
            0 | 1 => {
                let (lies, breaks) = (self.random.below(300), self.random.below(60));
                network.set_faults(node, Faults::all(lies as u32, breaks as u32));
            }
            2 | 3 => network.set_faults(node, Faults::default()),
            4 => network.evict_all(node),
            5 if self.down[at] => {
                network.start(node, 64 * MIB);
                self.down[at] = false;
            }
            5 => {
                network.kill(node);
                self.down[at] = true;
            }
            6 => {
                network.stop(node);
                self.read();
                self.server.tick();
                self.read();
                network.resume(node);
            }
            _ => {
                let on = self.random.below(4) > 0;
                self.server.db.set_pool_enabled(on).unwrap();
                let nodes = NODES[..1 + self.random.below(3) as usize].join(",");
                self.server.db.set_pool_nodes(&nodes).unwrap();
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..12 => self.read(),
            12..14 => self.write(),
            14 => self.server.db.flush().unwrap(),
            15 => drop(self.server.db.compact_once().unwrap()),
            16 => self.disturb(),
            17 => self.server.wait(1),
            _ => self.server.tick(),
        }
    }
}

#[test]
fn faults_of_nodes_change_no_row_and_fail_no_read() {
    let (mut hits, mut wrong) = (0, 0);
    for seed in 0..25 {
        let mut run = Run::new(seed);
        for _ in 0..250 {
            run.step();
        }
        run.server.check_all(&run.context);
        hits += run.server.reads().0;
        let stats = run.server.db.pool_stats().unwrap();
        let classes = stats.nodes.iter().flat_map(|node| &node.classes);
        wrong += classes.map(|class| class.lying).sum::<u64>();
        run.server.restart();
        run.server.check_all(&run.context);
    }
    assert!(hits > 1000, "only {hits} blocks came from the pool");
    assert!(
        wrong > 0 && wrong < hits,
        "{wrong} wrong values, {hits} hits"
    );
}

/// A value that a node has changed is deleted there, and read from the file.
#[test]
fn what_a_node_has_changed_is_deleted_there() {
    let network = network(7);
    let server = filled(&network);
    read_each(&server);
    server.tick();
    let lies = Faults {
        flip: 1000,
        ..Faults::default()
    };
    NODES.iter().for_each(|node| network.set_faults(node, lies));
    let read = |server: &Server| (0..40).for_each(|n| server.check_get(n * 50, "changed values"));
    let (pool, files) = server.reads_of(read);
    assert!(
        pool == 0 && files >= 30,
        "{pool} from the pool, {files} from files"
    );
    let stats = server.db.pool_stats().unwrap();
    let classes = stats.nodes.iter().flat_map(|node| &node.classes);
    let wrong: u64 = classes.map(|class| class.lying).sum();
    assert!(wrong >= 30, "{wrong} values were noticed");
    // What was read from the files is put in place of what was deleted.
    NODES
        .iter()
        .for_each(|node| network.set_faults(node, Faults::default()));
    server.tick();
    read_each(&server);
    let (pool, files) = server.reads_of(read);
    assert!(
        pool >= 30 && files == 0,
        "{pool} from the pool, {files} from files"
    );
}
