//! OPTIMIZE beside other work.

use super::prepared::schema;
use firn::base::key::index_prefix;
use firn::base::key_range::KeyRange;
use firn::base::options::Options;
use firn::catalog::NewTable;
use firn::db::Db;
use firn::env::{Env, MemEnv};
use std::path::Path;
use std::sync::Arc;

/// Scans of another table have reported stretches of tombstones. Only the background picker looks
/// at that table.
#[test]
fn optimize_leaves_the_reports_of_other_tables_open() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(env, Path::new("/db"), options, None).unwrap();
    let create = |name: &str| {
        let new = NewTable {
            schema: schema(),
            frm: b"",
            version: b"",
            created_micros: 0,
        };
        db.catalog().create(name, new).unwrap().clustered.id
    };
    let (one, other) = (create("d/one"), create("d/other"));
    let range = KeyRange {
        smallest: index_prefix(other).to_vec(),
        largest: [&index_prefix(other)[..], &[9]].concat(),
    };
    let reports = &db.context().tombstone_reports;
    assert!(reports.report(range.clone()));
    db.optimize(&[one], &mut |_, _| Ok(())).unwrap();
    let oldest = db.context().super_versions.visible();
    assert_eq!(reports.open(oldest), [range]);
    db.close().unwrap();
}
