//! Reads of values that lie out of line are counted by their purpose.

use super::rows::*;
use super::world::*;
use firn::table::{RowScratch, WriteFlags};
use std::collections::BTreeMap;

/// The numbers of reads that `f` makes, by class.
fn reads(world: &mut World, f: impl FnOnce(&mut World)) -> BTreeMap<&'static str, u64> {
    let totals = |world: &World| {
        let all = world.db.file_reads();
        all.map(|one| (one.class.name(), one.reads))
            .collect::<BTreeMap<_, _>>()
    };
    let before = totals(world);
    f(world);
    let mut after = totals(world);
    after.iter_mut().for_each(|(name, n)| *n -= before[name]);
    after.retain(|_, n| *n > 0);
    after
}

#[test]
fn a_check_reads_values_as_it_reads_rows() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 60).unwrap();
        txn.commit().unwrap();
        drop(txn);
        world.db.flush().unwrap();
        let scanned = reads(&mut world, |world| assert!(scan(world) == rows));
        assert!(scanned["blob"] > 0, "seed {seed}: {scanned:?}");
        assert!(!scanned.contains_key("verify"), "seed {seed}: {scanned:?}");
        for extended in [false, true] {
            let checked = reads(&mut world, |world| {
                let super_versions = &world.db.context().super_versions;
                let report = world.table.check(super_versions, extended, &|| false);
                assert_eq!(report.unwrap().problems, [""; 0]);
            });
            assert!(checked["verify"] > 0, "seed {seed}: {checked:?}");
            let classes = ["index", "verify"];
            assert!(
                checked.keys().all(|class| classes.contains(class)),
                "seed {seed}: {checked:?}"
            );
        }
    }
}

/// An update needs the references of the stored row, which its statement has found in some way.
#[test]
fn the_row_that_an_update_changes_is_no_point() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 60).unwrap();
        txn.commit().unwrap();
        world.db.flush().unwrap();
        world.begin(&mut txn);
        let updated = reads(&mut world, |world| {
            let mut scratch = RowScratch::default();
            for (&id, old) in &rows {
                let mut new = old.clone();
                new.n += 1;
                let (before, after) = (record(id, old), record(id, &new));
                let flags = WriteFlags::default();
                // SAFETY: the blob columns point into `old` and `new`.
                unsafe {
                    world
                        .table
                        .update(&mut txn, &before, &after, None, flags, &mut scratch)
                }
                .unwrap();
            }
        });
        assert!(updated["range"] > 0, "seed {seed}: {updated:?}");
        assert!(!updated.contains_key("point"), "seed {seed}: {updated:?}");
        txn.rollback().unwrap();
    }
}
