//! The engine's directory of a restored copy.

use super::stage::write;
use crate::backup::format::{Backup, StoredFile, unhex};
use crate::backup::target::{Target, Transfer};
use crate::output::Output;
use firn::base::options::Options;
use firn::base::{Error, IndexId, Result};
use firn::catalog::CATALOG_INDEX;
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use firn::store::parse_file_name;
use firn::version::{State, create_manifest, load};
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Fills `dir` with everything the backup has. Returns the bytes of its files.
pub fn whole(target: &Target, backup: &Backup, dir: &Path, out: &Output) -> Result<u64> {
    let files: Vec<&StoredFile> = backup.files.iter().collect();
    let bytes = fetch(target, &files, dir, out)?;
    for (name, digits) in &backup.small {
        write(&dir.join(name), &unhex(digits)?)?;
    }
    PosixEnv::new().sync_dir(dir)?;
    Ok(bytes)
}

/// Fills `dir` with what these tables need; they are all that is in its catalog then.
pub fn tables(
    target: &Target,
    backup: &Backup,
    tables: &[&str],
    dir: &Path,
    out: &Output,
) -> Result<u64> {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let mut state = manifest_of(&env, backup, dir)?;
    let gone = keep_only(&mut state, backup, tables);
    let files = backup.files.iter();
    let files: Vec<&StoredFile> = files
        .filter(|file| parse_file_name(&file.name).is_none_or(|(_, id)| !gone.contains(&id)))
        .collect();
    let bytes = fetch(target, &files, dir, out)?;
    create_manifest(&*env, dir, &state)?;
    drop_others(&env, dir, tables)?;
    Ok(bytes)
}

/// What the backup's manifest says, read in a directory of its own below `dir`.
fn manifest_of(env: &Arc<dyn Env>, backup: &Backup, dir: &Path) -> Result<State> {
    let aside = dir.join("manifest.tmp");
    env.create_dir_all(&aside)?;
    for (name, digits) in &backup.small {
        write(&aside.join(name), &unhex(digits)?)?;
    }
    let loaded = load(&**env, &aside);
    std::fs::remove_dir_all(&aside).map_err(|e| Error::io(&e, aside.display()))?;
    let missing = || Error::corruption("CURRENT", 0, "the backup has none");
    Ok(loaded?.ok_or_else(missing)?.state)
}

/// Leaves the files that hold entries of these tables, or of the catalog. Returns the others.
fn keep_only(state: &mut State, backup: &Backup, tables: &[&str]) -> HashSet<u64> {
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

/// Drops the tables that were not asked for: their definitions are in the catalog, their files are not all here.
fn drop_others(env: &Arc<dyn Env>, dir: &Path, tables: &[&str]) -> Result<()> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(Arc::clone(env), dir, options, None)?;
    for table in db.catalog().list("") {
        if !tables.contains(&table.name.as_str()) {
            db.catalog().drop_table(&table.name)?;
        }
    }
    db.close()
}

/// Fetches the files and compares checksums. Returns their bytes.
fn fetch(target: &Target, files: &[&StoredFile], dir: &Path, out: &Output) -> Result<u64> {
    let transfers: Vec<Transfer> = files
        .iter()
        .map(|file| Transfer {
            object: file.object.clone(),
            file: dir.join(&file.name),
            len: file.stored,
        })
        .collect();
    let bar = out.progress("fetching", transfers.iter().map(|t| t.len).sum());
    let sums = target.fetch(&transfers, true, &|len| bar.inc(len));
    bar.finish_and_clear();
    for (file, sum) in files.iter().zip(sums) {
        if format!("{:016x}", sum?) != file.checksum {
            let what = "not as it was sent; nothing can be restored from it";
            return Err(Error::corruption(file.object.clone(), 0, what));
        }
        if file.stored < file.size {
            let path = dir.join(&file.name);
            let failed = |e| Error::io(&e, path.display());
            let end = File::options().write(true).open(&path).map_err(failed)?;
            end.set_len(file.size).map_err(failed)?;
        }
    }
    // All of them at once.
    let synced = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
    synced.map_err(|e| Error::io(&e, dir.display()))?;
    Ok(files.iter().map(|file| file.size).sum())
}
