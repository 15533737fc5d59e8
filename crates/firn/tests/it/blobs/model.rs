//! Random work on rows with blobs, compared with a model.

use super::rows::*;
use super::world::*;
use rand::Rng;

#[test]
fn rows_with_blobs_agree_with_a_model() {
    for seed in 0..9 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        for round in 0..60 {
            let context = format!("seed {seed}, round {round}");
            let mut txn = world.session();
            let mut next = rows.clone();
            world.write(&mut txn, &mut next, 6).unwrap();
            if world.rng.random_bool(0.3) {
                let mark = txn.savepoint();
                let mut forgotten = next.clone();
                world.write(&mut txn, &mut forgotten, 3).unwrap();
                txn.rollback_to(mark);
            }
            world.begin(&mut txn);
            world.check_in(&mut txn, &next, &context);
            match world.rng.random_range(0..8) {
                0 => txn.rollback().unwrap(),
                1 => {
                    let xid = format!("x{round}");
                    txn.prepare(xid.as_bytes()).unwrap();
                    txn.detach(world.db.new_owner(0));
                    drop(txn);
                    if world.rng.random() {
                        world.crash();
                    }
                    world.collect();
                    if world.rng.random() {
                        assert!(world.db.commit_xid(xid.as_bytes()).unwrap());
                        rows = next;
                    } else {
                        assert!(world.db.rollback_xid(xid.as_bytes()).unwrap());
                    }
                }
                _ => {
                    txn.commit().unwrap();
                    rows = next;
                }
            }
            match world.rng.random_range(0..8) {
                0 => world.db.flush().unwrap(),
                1 => world.db.compact_all().unwrap(),
                2 => drop(world.db.compact_once().unwrap()),
                3 => world.crash(),
                _ => {}
            }
            world.db.collect_blobs().unwrap();
            if round % 4 == 0 {
                world.check(&rows, &context);
            }
        }
    }
}
