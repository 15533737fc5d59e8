//! What servers tell each other.

use super::*;

fn server(network: &Arc<MemPool>, server: u64) -> World {
    let world = World::over(
        network,
        Options {
            server,
            ..Options::new(1)
        },
    );
    world.pool.set_nodes("a:1,b:1").unwrap();
    world.pool.set_enabled(true);
    world.pool.tick();
    world
}

fn network() -> Arc<MemPool> {
    let network = Arc::new(MemPool::new(1));
    [A, B].iter().for_each(|node| network.start(node, 64 * MIB));
    network
}

#[test]
fn a_server_hits_what_another_has_put() {
    let network = network();
    let (one, other) = (server(&network, 1), server(&network, 2));
    one.put(0..100);
    assert_eq!(other.hits(0..100), 0);
    one.pass(1_100_000);
    other.pass(1_100_000);
    assert_eq!(other.hits(0..100), 100);
}

/// The pages of news are overwritten or too old by then; the image has all.
#[test]
fn a_server_that_starts_reads_the_image_of_the_table() {
    let network = network();
    let one = server(&network, 1);
    for round in 0..80 {
        one.put(round * 10..round * 10 + 10);
        one.pass(1_000_000);
    }
    one.pass(601_000_000);
    drop(one);
    for number in [1, 2] {
        let late = server(&network, number);
        assert_eq!(late.hits(0..800), 800, "server {number}");
    }
}

#[test]
fn a_table_of_a_new_size_learns_again() {
    let network = network();
    let one = server(&network, 1);
    one.put(0..100);
    one.pass(12_000_000);
    one.pool.set_nodes("a:1").unwrap();
    one.pass(1_000_000);
    one.pool.set_nodes("a:1,b:1").unwrap();
    one.pass(1_000_000);
    assert_eq!(one.hits(0..100), 100);
}
