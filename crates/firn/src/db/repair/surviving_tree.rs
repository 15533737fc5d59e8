//! Decides which files of a damaged database, and which part of its log, belong to the repaired
//! one.

use super::Repaired;
use crate::base::{CounterValue, Error, Result, Seqno};
use crate::blob::BlobStore;
use crate::db::read_only::{ReadOnlyDb, ReadOnlyTree};
use crate::sst::IndexStats;
use crate::store::{FileKind, OWNER_FILE, RemoteSst, file_name};
use crate::version::{self, FileLocation, PlacedFile};
use crate::wal::{self, Gtid, LogStart};
use std::collections::{BTreeMap, BTreeSet};

/// The remains of the manifest.
pub(super) struct SurvivingTree {
    /// Ids of the SSTs that belong to the tree, or may belong to it if the manifest is damaged. The
    /// second value is the external seqno of the file (that of an ingested run or a load), which
    /// only the manifest records; `None` if the file has none.
    pub(super) files: Vec<(u64, Option<Seqno>)>,
    /// Start of the log.
    pub(super) log: LogStart,
    /// Commits up to this seqno are in the files.
    pub(super) last_seqno: Seqno,
    pub(super) counters: BTreeMap<u64, CounterValue>,
    /// The last global transaction id of each replication domain in the manifest.
    pub(super) gtids: BTreeMap<u32, Gtid>,
    /// The blob files whose blobs were moved: maps the file id that blob references contain to the
    /// id of the file that holds the blobs now.
    pub(super) blobs_moved: BTreeMap<u64, u64>,
    /// The files that are in the object store.
    pub(super) remote: BTreeMap<u64, RemoteSst>,
    /// The index statistics of each file; empty if the manifest was damaged.
    pub(super) held: BTreeMap<u64, Vec<IndexStats>>,
}

impl SurvivingTree {
    /// Reads the current manifest. If it is damaged, reads the newest manifest, or as many of its
    /// edits as are intact. Reports each loss to `lost`.
    ///
    /// # Errors
    /// `Io` of the file system; `Unsupported` for newer formats, if files are in an object store
    /// that is not attached, and if the manifest is damaged and files may be there.
    pub(super) fn of(
        damaged_db: &ReadOnlyDb,
        repaired: &mut Repaired,
        lost: &mut dyn FnMut(Error),
    ) -> Result<Self> {
        let tree = damaged_db
            .tree()
            .or_else(|error| match error.is_corruption() {
                true => {
                    lost(error);
                    damaged_db.newest_tree()
                }
                false => Err(error),
            });
        match tree {
            Ok(tree) => {
                // Refuse files that lie in an object store first: otherwise they would count as
                // missing ones.
                let remote = remote_files(damaged_db, &tree)?;
                match doubt(damaged_db, &tree, &remote)? {
                    None => {
                        let waiting = tree.state.deferred.len();
                        if waiting > 0 {
                            let note = format!(
                                "{waiting} files in an object store were to be deleted: the saved database does not know them"
                            );
                            repaired.notes.push(note);
                        }
                        return Self::known(damaged_db, tree, remote);
                    }
                    Some(doubt) => lost(doubt),
                }
            }
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(error),
        }
        let owner_file = damaged_db.dir().join(OWNER_FILE);
        if damaged_db.env().exists(&owner_file)? {
            return Err(Error::unsupported(format!(
                "the manifest is damaged, and the database has used an object store: files there could not be told \
                 from missing ones. If all files were in the data directory, remove {} first",
                owner_file.display()
            )));
        }
        let note = "the manifest is damaged: rows that were changed or deleted shortly before may be older than they \
                    were";
        repaired.notes.push(note.to_owned());
        let salvaged = version::salvage_manifest(&**damaged_db.env(), damaged_db.dir(), lost)?;
        let mut files = damaged_db.source().store().list()?;
        files.retain(|id| salvaged.may_be_live(*id));
        let external = |id| (id, salvaged.external.get(&id).copied());
        Ok(Self {
            files: files.into_iter().map(external).collect(),
            log: LogStart::Unknown {
                at_least: salvaged.log_number,
            },
            last_seqno: salvaged.last_seqno,
            counters: salvaged.counters,
            gtids: salvaged.gtids,
            blobs_moved: BlobStore::moved_on_disk(damaged_db.source().store())?,
            remote: BTreeMap::new(),
            held: BTreeMap::new(),
        })
    }

    /// The blobs of the damaged database.
    pub(super) fn blobs(&self, damaged_db: &ReadOnlyDb) -> BlobStore {
        let blobs = BlobStore::read_only(damaged_db.source().store().clone(), 0);
        blobs.set_moved(self.blobs_moved.clone());
        blobs
    }

    fn known(
        damaged_db: &ReadOnlyDb,
        tree: ReadOnlyTree,
        remote: BTreeMap<u64, RemoteSst>,
    ) -> Result<Self> {
        let placed = tree.state.files.iter();
        let held = placed.map(|(id, placed)| (*id, placed.meta.per_index.clone()));
        Ok(Self {
            held: held.collect(),
            remote,
            files: tree
                .state
                .files
                .iter()
                .map(|(id, placed)| (*id, placed.meta.external_seqno))
                .collect(),
            log: LogStart::At(tree.state.log_number),
            last_seqno: tree.state.last_seqno,
            counters: tree.state.counters,
            gtids: tree.state.gtids,
            blobs_moved: blobs_moved(damaged_db, tree.state.blobs_moved)?,
        })
    }
}

/// The files that are read from the object store. The places in the manifest are a hint: files may
/// have moved since, if its last edits are lost. So the store is asked for a missing local file; if
/// it has none, the file counts as missing, for [`doubt`] and for the report.
///
/// # Errors
/// `Unsupported` if a file is, or may be, in an object store, and none is attached; `Io`, those of
/// the store.
fn remote_files(damaged_db: &ReadOnlyDb, tree: &ReadOnlyTree) -> Result<BTreeMap<u64, RemoteSst>> {
    let store = damaged_db.source().store();
    let there: BTreeSet<u64> = store.list()?.into_iter().collect();
    let owner_file = damaged_db.dir().join(OWNER_FILE);
    let has_used_store = damaged_db.env().exists(&owner_file)?;
    let mut remote = BTreeMap::new();
    for placed in tree.state.files.values() {
        let (meta, file) = (&placed.meta, placed.meta.as_remote());
        let is_there = there.contains(&meta.file_id);
        let is_here = match meta.location {
            FileLocation::Local => is_there || !has_used_store,
            // A copy that was begun, and not finished, has the same name.
            FileLocation::ObjectStore => is_there && store.has_whole(&file),
        };
        if is_here {
            continue;
        }
        let Some(objects) = store.remote() else {
            meta.check_local()?;
            return Err(Error::unsupported(format!(
                "{} is missing, and may be in the object store that the database has used: name that store, or \
                 remove {} if the store is given up",
                file_name(FileKind::Sst, meta.file_id),
                owner_file.display()
            )));
        };
        if meta.location == FileLocation::ObjectStore || objects.is_there(&file)? {
            remote.insert(meta.file_id, file);
        }
    }
    Ok(remote)
}

/// Maps logical to physical ids of rewritten blob files. A manifest that lost its end may lack the
/// last rewrites; the headers of the blob files then tell which logical file each has. No SST shows
/// such a loss, since references keep the logical id.
fn blobs_moved(
    damaged_db: &ReadOnlyDb,
    mut moved: BTreeMap<u64, u64>,
) -> Result<BTreeMap<u64, u64>> {
    let store = damaged_db.source().store();
    let there = store.list_blobs()?;
    for (logical, physical) in BlobStore::moved_on_disk(store)? {
        let known = moved.get(&logical).unwrap_or(&logical);
        if !there.contains(known) {
            moved.insert(logical, physical);
        }
    }
    Ok(moved)
}

/// Returns an error if the end of the manifest was probably lost, exactly between two edits, so
/// that the rest looks intact. Such a manifest names files, or needs log segments, that were
/// removed since, and does not name the files that replaced them. (Damage within a log segment does
/// not indicate a lost end, nor do files that have moved to the object store.)
fn doubt(
    damaged_db: &ReadOnlyDb,
    tree: &ReadOnlyTree,
    remote: &BTreeMap<u64, RemoteSst>,
) -> Result<Option<Error>> {
    let known = &tree.state.files;
    let (env, dir) = (&**damaged_db.env(), damaged_db.dir());
    let there: BTreeSet<u64> = damaged_db.source().store().list()?.into_iter().collect();
    let is_local = |placed: &&PlacedFile| {
        placed.meta.location == FileLocation::Local && !remote.contains_key(&placed.meta.file_id)
    };
    let mut local = known
        .values()
        .filter(is_local)
        .map(|placed| placed.meta.file_id);
    let missing = match local.find(|id| !there.contains(id)) {
        Some(id) => Some(file_name(FileKind::Sst, id)),
        None => wal::missing_segment(env, dir, tree.state.log_number)?.map(wal::segment_name),
    };
    let Some(missing) = missing else {
        return Ok(None);
    };
    // Count only files with ids above the id of the manifest. Each open begins a new manifest, so
    // files with smaller ids that it does not name are leftovers of an earlier open. Do not count
    // files that an edit has removed: a stop leaves those that still wait for their deletion.
    let removed = version::removed_files(env, dir, tree.manifest_id)?;
    let mut newer = there;
    newer.retain(|id| *id > tree.manifest_id && !known.contains_key(id) && !removed.contains(id));
    // Exclude the files of large transactions: until they are installed, only the log names them.
    for file in damaged_db.files_left(tree)? {
        newer.remove(&file.file_id);
    }
    if newer.is_empty() {
        return Ok(None);
    }
    let message = format!("edits are lost: it needs {missing}, and does not name all files");
    let manifest = version::manifest_name(tree.manifest_id);
    Ok(Some(Error::corruption(manifest, 0, message)))
}
