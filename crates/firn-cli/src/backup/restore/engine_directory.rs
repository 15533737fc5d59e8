//! The engine's directory of a restored copy.

use super::prepared_transactions::end_prepared;
use super::staging::write;
use crate::backup::backup_format::{Backup, StoredFile, unhex};
use crate::backup::target::{Target, Transfer};
use crate::output::Output;
use firn::base::options::Options;
use firn::base::{Error, IndexId, Result};
use firn::catalog::CATALOG_INDEX;
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use firn::store::parse_file_name;
use firn::version::{ManifestState, create_manifest};
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Fills `dir` with all files of the backup. Returns their bytes.
pub fn whole(target: &Target, backup: &Backup, dir: &Path, out: &Output) -> Result<u64> {
    let files: Vec<&StoredFile> = backup.files.iter().collect();
    let bytes = fetch(target, &files, dir, out)?;
    for (name, digits) in &backup.small {
        write(&dir.join(name), &unhex(digits)?)?;
    }
    let env = PosixEnv::new();
    let mut state = backup.state()?;
    if !state.deferred.is_empty() {
        // The objects are those of the database that was backed up.
        state.deferred.clear();
        create_manifest(&env, dir, &state)?;
    }
    env.sync_dir(dir)?;
    Ok(bytes)
}

/// Fills `dir` with the files that these tables need, and drops all other tables from its catalog.
/// Remarks for the user go to `notes`.
pub fn tables(
    target: &Target,
    backup: &Backup,
    tables: &[&str],
    dir: &Path,
    notes: &mut Vec<String>,
    out: &Output,
) -> Result<u64> {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let mut state = backup.state()?;
    state.deferred.clear();
    let gone = keep_only(&mut state, backup, tables);
    let files = backup.files.iter();
    let files: Vec<&StoredFile> = files
        .filter(|file| parse_file_name(&file.name).is_none_or(|(_, id)| !gone.contains(&id)))
        .collect();
    let bytes = fetch(target, &files, dir, out)?;
    create_manifest(&*env, dir, &state)?;
    drop_others(&env, dir, tables, notes)?;
    Ok(bytes)
}

/// Removes from `state` all files but those with entries of these tables or of the catalog. Returns
/// the ids of the removed files.
fn keep_only(state: &mut ManifestState, backup: &Backup, tables: &[&str]) -> HashSet<u64> {
    let of_tables = tables.iter().filter_map(|table| backup.tables.get(*table));
    let mut wanted: HashSet<IndexId> = of_tables.flat_map(|t| t.indexes.iter().copied()).collect();
    wanted.insert(CATALOG_INDEX);
    let mut gone = HashSet::new();
    state.files.retain(|id, placed| {
        let mut indexes = placed.meta.per_index.iter();
        let keep = indexes.any(|stats| wanted.contains(&stats.index));
        if !keep {
            gone.insert(*id);
        }
        keep
    });
    gone
}

/// Drops the tables that were not asked for: the catalog has their definitions, but some of their
/// files were not restored.
fn drop_others(
    env: &Arc<dyn Env>,
    dir: &Path,
    tables: &[&str],
    notes: &mut Vec<String>,
) -> Result<()> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(Arc::clone(env), dir, options, None)?;
    end_prepared(&db, false, notes)?;
    for table in db.catalog().list("") {
        if !tables.contains(&table.name.as_str()) {
            db.catalog().drop_table(&table.name)?;
        }
    }
    for ((kind, name), _) in db.catalog().objects() {
        db.catalog().set_object(kind, &name, None)?;
    }
    for name in db.catalog().partitioned() {
        let partition = format!("{name}#");
        if !tables.iter().any(|table| table.starts_with(&partition)) {
            db.catalog().set_partitioning(&name, None)?;
        }
    }
    db.close()
}

/// Fetches the files into `dir` and compares their checksums on the way. Returns their bytes.
pub fn fetch(target: &Target, files: &[&StoredFile], dir: &Path, out: &Output) -> Result<u64> {
    let mut transfers = Vec::new();
    for file in files {
        let path = dir.join(&file.name);
        PosixEnv::new().create_dir_all(path.parent().unwrap_or(dir))?;
        let made = File::create_new(&path).and_then(|made| made.set_len(file.size));
        made.map_err(|e| Error::io(&e, path.display()))?;
        let pieces = file.pieces.iter();
        transfers.extend(pieces.map(|piece| Transfer {
            piece: piece.clone(),
            file: Some(path.clone()),
        }));
    }
    let bar = out.progress("fetching", transfers.iter().map(|t| t.piece.len()).sum());
    let fetched = target.fetch(&transfers, true, &|len| bar.inc(len));
    bar.finish_and_clear();
    fetched.into_iter().collect::<Result<()>>()?;
    // One call syncs all files.
    let synced = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
    synced.map_err(|e| Error::io(&e, dir.display()))?;
    Ok(files.iter().map(|file| file.size).sum())
}
