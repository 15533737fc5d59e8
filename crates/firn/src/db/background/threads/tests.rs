use super::*;
use crate::base::Value;
use crate::base::options::Options;
use crate::db::Db;
use crate::env::{Env, PosixEnv};
use crate::txn::Isolation;

#[test]
fn obsolete_files_go_at_once_when_room_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(env, dir.path(), options, None).unwrap();
    for _ in 0..3 {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
        for n in 0..100u64 {
            let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
            txn.put(&key, Value::whole(b"a row")).unwrap();
        }
        txn.commit().unwrap();
        db.flush().unwrap();
    }
    let work = &db.work;
    while work.compact_once(Rest::Complete).unwrap() {}
    let (files, bytes) = work.versions.obsolete();
    assert!(files >= 3, "{files} files");
    // No pause after a failure, since the database is about to stop.
    work.stopping.store(true, Ordering::Release);
    work.failed(
        "a test",
        &Error::new(ErrorKind::ShutDown, "of another kind"),
    );
    assert_eq!(work.versions.obsolete(), (files, bytes));
    work.failed("a test", &Error::new(ErrorKind::NoSpace, "no room"));
    assert_eq!(work.versions.obsolete(), (0, 0));
    let on_disk = work.versions.source().store().list().unwrap();
    assert_eq!(on_disk.len(), work.versions.current().files().count());
}
