//! Two databases that began as copies of one share nodes: their files have the same ids, and often
//! the same places and lengths of blocks, but other contents.

use super::*;
use std::collections::BTreeSet;

/// The SSTs of a database, by name.
fn files(server: &Server) -> BTreeMap<String, Vec<u8>> {
    let names = server.env.list_dir(Path::new("/db")).unwrap();
    let ssts = names.into_iter().filter(|name| name.ends_with(".sst"));
    ssts.map(|name| {
        let content = server.env.read(&Path::new("/db").join(&name)).unwrap();
        (name, content)
    })
    .collect()
}

fn check(server: &Server, random: &mut SplitMix64, context: &str) {
    for _ in 0..60 {
        server.check_get(random.below(KEYS), context);
    }
    let from = random.below(KEYS);
    server.check_range(from, from + random.below(400), context);
    let wanted: Vec<u64> = (0..32).map(|_| random.below(KEYS)).collect();
    server.check_batch(&wanted, context);
    server.tick();
}

#[test]
fn forks_never_see_each_others_blocks() {
    let (mut twins, mut hits) = (0, [0, 0]);
    for seed in 0..6 {
        let network = network(seed);
        let mut random = SplitMix64::new(seed);
        let first = filled(&network);
        first.db.close().unwrap();
        let copy = first.env.copy();
        drop(first.db);
        let mut servers = [
            Server::on(first.env, &network, 1, first.rows.clone()),
            Server::on(copy, &network, 2, first.rows),
        ];
        for round in 0..8 {
            // Both change the same keys in the same order, so that they write files of the same
            // ids, with blocks of the same lengths in the same places. Only the values differ.
            let changes: Vec<(u64, u64)> = (0..200)
                .map(|_| (random.below(KEYS), random.below(8)))
                .collect();
            let compacts = random.below(2) == 0;
            for server in &mut servers {
                let rows: Vec<_> = changes
                    .iter()
                    .map(|(n, kind)| (*n, (*kind > 0).then(|| bytes(&mut random, 90))))
                    .collect();
                server.write(&rows);
                server.db.flush().unwrap();
                if compacts {
                    while server.db.compact_once().unwrap() {}
                }
            }
            for _ in 0..3 {
                for server in &servers {
                    let context = format!("seed {seed}, round {round}, server {}", server.number);
                    check(server, &mut random, &context);
                    server.wait(1);
                }
            }
        }
        let [one, other] = [files(&servers[0]), files(&servers[1])];
        let both: BTreeSet<_> = one
            .keys()
            .filter(|name| other.contains_key(*name))
            .collect();
        twins += both
            .into_iter()
            .filter(|name| one[*name] != other[*name] && one[*name].len() == other[*name].len())
            .count();
        for (hits, server) in hits.iter_mut().zip(&servers) {
            *hits += server.reads().0;
        }
    }
    assert!(
        twins > 5,
        "only {twins} files of both have one id and length"
    );
    assert!(
        hits.iter().all(|hits| *hits > 1000),
        "{hits:?} blocks from the pool"
    );
}
