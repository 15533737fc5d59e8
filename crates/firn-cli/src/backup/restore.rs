//! `firn restore`: a backup as a data directory.
//!
//! `CURRENT` is written last: a directory that was left by half is refused by the engine. Nothing is overwritten.

use super::create::{busy, position_text};
use super::format::{Backup, Position, StoredFile, find, unhex};
use super::source::{Definitions, base_table, belonging};
use super::target::{Target, Transfer};
use crate::Outcome;
use crate::args::Restore;
use crate::output::{Output, bytes};
use firn::base::options::Options;
use firn::base::{Error, ErrorKind, IndexId, Result};
use firn::catalog::CATALOG_INDEX;
use firn::db::{Db, Look};
use firn::env::{Env, PosixEnv};
use firn::store::parse_file_name;
use firn::version::{State, create_manifest, load};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Name of the engine's directory in the server's.
const ENGINE: &str = "#firn";

#[derive(Serialize)]
struct Report {
    id: String,
    directory: String,
    tables: Vec<String>,
    bytes: u64,
    /// Commits that the server replays when it starts.
    commits_to_replay: u64,
    seqno: u64,
    position: Option<Position>,
}

/// Restores a backup.
pub fn run(args: &Restore, out: &Output) -> Result<Outcome> {
    let target = Target::open(&args.target, false)?;
    let backup = find(&target, &args.backup)?;
    let tables = chosen(&backup, &args.table)?;
    let all = args.table.is_empty();
    let mut definitions = Definitions::new();
    for (path, digits) in &backup.definitions {
        definitions.insert(path.clone(), unhex(digits)?);
    }
    if !all {
        definitions = belonging(&definitions, &tables, false);
    }
    require_room(&args.to, &definitions)?;

    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let engine = args.to.join(ENGINE);
    env.create_dir_all(&engine)?;
    let mut state = manifest_of(&env, &backup, &engine)?;
    let mut files: Vec<&StoredFile> = backup.files.iter().collect();
    if !all {
        let gone = keep_only(&mut state, &backup, &tables);
        files.retain(|file| parse_file_name(&file.name).is_none_or(|(_, id)| !gone.contains(&id)));
    }
    let restored = fetch(&target, &files, &engine, out)?;
    if all {
        for (name, digits) in backup.small.iter().filter(|(name, _)| *name != "CURRENT") {
            write(&engine.join(name), &unhex(digits)?)?;
        }
        env.sync_dir(&engine)?;
        let current = backup.small.get("CURRENT").map(String::as_str);
        write(
            &engine.join("CURRENT"),
            &unhex(current.unwrap_or_default())?,
        )?;
        env.sync_dir(&engine)?;
    } else {
        create_manifest(&*env, &engine, &state)?;
        drop_others(&env, &engine, &tables)?;
    }
    for (path, bytes) in &definitions {
        let path = args.to.join(path);
        env.create_dir_all(path.parent().unwrap_or(&args.to))?;
        write(&path, bytes)?;
        env.sync_dir(path.parent().unwrap_or(&args.to))?;
    }
    env.sync_dir(&args.to)?;

    let look = Look::open(env, &engine)?;
    let tree = look.tree()?;
    let log = look.log(&tree)?;
    let known = look.tables(&log.point)?;
    for table in &tables {
        if !known.tables.contains_key(*table) {
            return Err(Error::corruption(ENGINE, 0, format!("{table} is missing")));
        }
    }
    let report = Report {
        id: backup.id.clone(),
        directory: args.to.display().to_string(),
        tables: tables.iter().map(|&t| t.to_owned()).collect(),
        bytes: restored,
        commits_to_replay: log.commits,
        seqno: log.point.seqno,
        position: backup.position.clone(),
    };
    out.print(&report, |report| {
        format!(
            "backup {} is in {}: {} tables, {}, every checksum right; {} commits to replay\n{}",
            report.id,
            report.directory,
            report.tables.len(),
            bytes(report.bytes),
            report.commits_to_replay,
            position_text(report.position.as_ref())
        )
    });
    Ok(Outcome::Well)
}

/// Catalog names of the tables asked for, or of all; partitions come with their table.
fn chosen<'a>(backup: &'a Backup, wanted: &[String]) -> Result<Vec<&'a str>> {
    let all = backup.tables.keys().map(String::as_str);
    if wanted.is_empty() {
        return Ok(all.collect());
    }
    let path = |name: &str| name.replacen('.', "/", 1);
    for name in wanted {
        if !all.clone().any(|table| base_table(table) == path(name)) {
            let message = format!("backup {} has no FIRN table {name}", backup.id);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
    }
    Ok(all
        .filter(|table| wanted.iter().any(|name| base_table(table) == path(name)))
        .collect())
}

/// The directory is empty or missing, or that of a server without FIRN tables which has none of the files.
fn require_room(to: &Path, definitions: &Definitions) -> Result<()> {
    let mut entries = match fs::read_dir(to) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(&e, to.display())),
    };
    if entries.next().is_none() {
        return Ok(());
    }
    let engine = to.join(ENGINE);
    if !to.join("mysql").is_dir() {
        let message = format!("{} is neither empty nor a data directory", to.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    if fs::read_dir(&engine).is_ok_and(|mut inside| inside.next().is_some()) {
        return Err(busy(&engine));
    }
    let taken = definitions.keys().map(|path| to.join(path));
    match taken.into_iter().find(|path| path.exists()) {
        Some(path) => Err(busy(&path)),
        None => Ok(()),
    }
}

/// What the backup's manifest says, read beside the place where it will lie.
fn manifest_of(env: &Arc<dyn Env>, backup: &Backup, engine: &Path) -> Result<State> {
    let aside = engine.join("manifest.tmp");
    env.create_dir_all(&aside)?;
    for (name, digits) in &backup.small {
        write(&aside.join(name), &unhex(digits)?)?;
    }
    let loaded = load(&**env, &aside);
    fs::remove_dir_all(&aside).map_err(|e| Error::io(&e, aside.display()))?;
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
fn drop_others(env: &Arc<dyn Env>, engine: &Path, tables: &[&str]) -> Result<()> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(Arc::clone(env), engine, options, None)?;
    for table in db.catalog().list("") {
        if !tables.contains(&table.name.as_str()) {
            db.catalog().drop_table(&table.name)?;
        }
    }
    db.close()
}

/// Fetches the files and compares checksums. Returns their bytes.
fn fetch(target: &Target, files: &[&StoredFile], engine: &Path, out: &Output) -> Result<u64> {
    let transfers: Vec<Transfer> = files
        .iter()
        .map(|file| Transfer {
            object: file.object.clone(),
            file: engine.join(&file.name),
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
            let path = engine.join(&file.name);
            let failed = |e| Error::io(&e, path.display());
            let end = File::options().write(true).open(&path).map_err(failed)?;
            end.set_len(file.size).map_err(failed)?;
        }
    }
    // All of them at once.
    let synced = File::open(engine).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
    synced.map_err(|e| Error::io(&e, engine.display()))?;
    Ok(files.iter().map(|file| file.size).sum())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AlreadyExists => busy(path),
        _ => Error::io(&e, path.display()),
    };
    let mut file = File::create_new(path).map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(failed)
}
