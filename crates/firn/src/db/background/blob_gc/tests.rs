use crate::base::blob_ref::BlobUse;
use crate::db::background::damage::tests::{newest, open, with_meta, write_file};
use crate::env::{FaultEnv, MemEnv};
use crate::store::{FileKind, file_name};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An SST that the device cannot read keeps the garbage of those blob files that it names, and of
/// no other.
#[test]
fn an_unreadable_table_does_not_stop_the_collection() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let db = open(Arc::new(env.clone()));
    write_file(&db, 1000);
    let file = newest(&db);
    let version = with_meta(&db, |meta| {
        meta.blobs = vec![BlobUse {
            file: 77,
            refs: 1,
            bytes: 10,
        }];
    });
    db.work.super_versions.installed(Arc::new(version), &[]);
    env.fail_reads(&file_name(FileKind::Sst, file.file_id));
    // The quarantine installs a version that does not have the invented blobs.
    let super_version = db.work.super_versions.pin();
    let collect = || {
        let mut spans = BTreeMap::from([(77, Vec::new()), (78, Vec::new())]);
        let done = db.work.collect(&super_version, &mut spans);
        done.map(|()| spans.into_keys().collect::<Vec<_>>())
    };
    collect().unwrap_err();
    assert!(db.work.versions.current().in_quarantine(file.file_id));
    assert_eq!(collect().unwrap(), [78]);
    assert!(db.work.blob_gc.quarantined.lock().contains(&77));
}
