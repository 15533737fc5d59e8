//! Checks that each blob reference points to a blob, and reports files that nothing refers to. The
//! check of the tables reads the values along with their rows; here only the values of prepared
//! transactions are read, because no row shows them.

use super::findings::Findings;
use firn::base::Result;
use firn::db::{ReadOnlyDb, ReadOnlyLog, ReadOnlyTree};
use firn::store::{FileKind, file_name};

/// Checks the blob files against the tree, and against the log if that could be read.
pub fn check(
    db: &ReadOnlyDb,
    tree: &ReadOnlyTree,
    log: Option<&ReadOnlyLog>,
    findings: &mut Findings,
) -> Result<()> {
    let mut found = |error| findings.error(&error);
    let Some(log) = log else {
        return db.check_blob_positions(&db.files_only(tree), &mut found);
    };
    db.check_blob_positions(&log.point, &mut found)?;
    db.check_prepared_blobs(log, &mut found)?;
    let blobs = db.blobs(tree, log)?;
    let what = match blobs.missing.is_empty() {
        true => "nothing refers to this file; the next start removes it",
        false => "nothing refers to this file; it stays as long as others are missing",
    };
    for stray in blobs.files.iter().filter(|file| file.used.is_none()) {
        findings.warning(&file_name(FileKind::Blob, stray.file), None, what);
    }
    Ok(())
}
