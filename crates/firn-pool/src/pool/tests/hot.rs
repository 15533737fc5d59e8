//! Second copies of hot blocks.

use super::*;

/// Gets one block over and over, and others now and then.
fn heat(world: &World, n: u64) {
    for turn in 0..8000 {
        world.get(if turn % 2 == 0 { n } else { turn % 300 });
        if turn % 100 == 0 {
            world.pool.tick();
        }
    }
}

#[test]
fn a_hot_block_is_on_two_nodes_and_both_are_asked() {
    let world = World::new(&[A, B]);
    world.put(0..300);
    heat(&world, 5);
    assert_eq!(world.pool.stats().hot_blocks, 1);
    let ring = world.pool.shared.ring.load_full();
    let first = ring.nodes()[ring.place(&name(5)).unwrap().0]
        .spec
        .address
        .to_string();
    let second = if first == A { B } else { A };
    let gets = world.network.gets(second);
    assert_eq!((0..200).filter(|_| world.get(5).is_some()).count(), 200);
    let share = world.network.gets(second) - gets;
    assert!(
        (60..=140).contains(&share),
        "{share} of 200 on the second node"
    );
    world.network.kill(&first);
    let hits = (0..100).filter(|_| world.get(5).is_some()).count();
    assert!(hits > 95, "the copy is left: {hits}");
}

#[test]
fn a_copy_that_was_evicted_is_made_again() {
    let world = World::new(&[A, B]);
    world.put(0..300);
    heat(&world, 5);
    let ring = world.pool.shared.ring.load_full();
    let second = ring.nodes()[ring.place(&name(5)).unwrap().1.unwrap()]
        .spec
        .address
        .to_string();
    world.network.evict_all(&second);
    let hits = (0..100).filter(|_| world.get(5).is_some()).count();
    assert_eq!(hits, 99, "one get finds out");
    assert_eq!(world.pool.stats().hot_blocks, 0);
    world.pool.tick();
    assert_eq!(world.pool.stats().hot_blocks, 1);
    assert_eq!((0..100).filter(|_| world.get(5).is_some()).count(), 100);
}

#[test]
fn a_deleted_hot_block_is_deleted_twice() {
    let world = World::new(&[A, B]);
    world.put(0..300);
    heat(&world, 5);
    let items = world.network.items(A) + world.network.items(B);
    world.pool.delete(&name(5), Class::Point);
    world.pool.tick();
    assert_eq!(world.network.items(A) + world.network.items(B), items - 2);
    assert_eq!(world.pool.stats().hot_blocks, 0);
}
