//! Sends the objects that the target does not have yet.

use super::backup_format::{Backup, Piece, StoredFile};
use super::in_progress::InProgress;
use super::pieces::PieceSource;
use super::source::Source;
use super::target::{Target, Upload, UploadSource};
use crate::output::Output;
use firn::base::checksum::xxh3;
use firn::base::{Error, ErrorKind, Result};
use firn::db::{ReadOnlyLog, ReadOnlyTree};
use firn::env::{BLOCK, ReadFile};
use firn::store::{FileKind, RemoteSst, file_name, parse_file_name};
use firn::version::{FileLocation, FileMeta};
use firn::wal::parse_segment_name;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The files of a backup. The target has all of their objects now.
pub struct Sent {
    pub files: Vec<StoredFile>,
    /// The files of the rest of the server.
    pub server_files: Vec<StoredFile>,
    /// Number of files of which something was sent.
    pub sent_files: usize,
    pub sent_bytes: u64,
}

/// Sends the objects that the target does not have yet.
///
/// # Errors
/// `Corruption` of a table file that is not as it was written.
pub fn send(
    target: &Target,
    source: &Source,
    tree: &ReadOnlyTree,
    log: &ReadOnlyLog,
    out: &Output,
) -> Result<Sent> {
    let there = Arc::new(objects(target)?);
    let files = tables(tree, log);
    let mut whole = Vec::new();
    for (file, remote) in &files {
        let new = |piece: &&Piece| there.get(&piece.object) != Some(&piece.len());
        for piece in file.pieces.iter().filter(new) {
            whole.push(Upload {
                piece: piece.clone(),
                from: match remote {
                    None => UploadSource::File(source.dir.join(&file.name)),
                    Some(remote) => UploadSource::Remote(opened(source, remote)?),
                },
            });
        }
    }
    let mut files: Vec<StoredFile> = files.into_iter().map(|(file, _)| file).collect();
    let changing = changing(source, tree, log)?;
    let whole_bytes: u64 = whole.iter().map(|t| t.piece.len()).sum();
    let of_server = of_server(source);
    let read: u64 = changing.iter().chain(&of_server).map(|f| f.len).sum();
    let bar = out.progress("sending", whole_bytes + read);
    let mut sent = Sent {
        files: Vec::new(),
        server_files: Vec::new(),
        sent_files: whole.len(),
        sent_bytes: whole_bytes,
    };
    let sending = target.send(&whole, &|len| bar.inc(len));
    sending.map_err(|error| gone(source, tree, error))?;
    let mut in_pieces = |file: Changing| -> Result<StoredFile> {
        let parts: Vec<PieceSource> = PieceSource::of(&file.object, &file.path, file.len).collect();
        let found = target.send_parts(&parts, &there, &|len| bar.inc(len))?;
        let new = found.iter().flatten().filter(|(_, new)| *new);
        let new: Vec<u64> = new.map(|(piece, _)| piece.len()).collect();
        sent.sent_files += usize::from(!new.is_empty());
        sent.sent_bytes += new.iter().sum::<u64>();
        Ok(StoredFile {
            name: file.name,
            size: file.size,
            pieces: found
                .into_iter()
                .flatten()
                .map(|(piece, _)| piece)
                .collect(),
        })
    };
    for file in changing {
        files.push(in_pieces(file)?);
    }
    let server_files: Result<Vec<_>> = of_server.into_iter().map(&mut in_pieces).collect();
    sent.server_files = server_files?;
    bar.finish_and_clear();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    sent.files = files;
    Ok(sent)
}

/// A file of the object store.
fn opened(source: &Source, file: &RemoteSst) -> Result<Arc<dyn ReadFile>> {
    let opened = source.db.source().store().open_remote(file, Arc::new(()));
    Ok(Arc::clone(opened?.file()))
}

/// An object may be deleted while it is sent, if the server does not know of the backup any more:
/// then it is no damage.
fn gone(source: &Source, tree: &ReadOnlyTree, error: Error) -> Error {
    let ErrorKind::Corruption { file, .. } = error.kind() else {
        return error;
    };
    let remote = source.db.source().store().remote();
    let (Some(remote), Some((FileKind::Sst, id))) = (remote, parse_file_name(file)) else {
        return error;
    };
    let placed = tree.state.files.get(&id);
    let placed = placed.filter(|placed| placed.meta.location == FileLocation::ObjectStore);
    match placed.map(|placed| remote.is_there(&placed.meta.as_remote())) {
        Some(Ok(false)) => {
            let message = format!(
                "{}: the object of {file} was deleted during the backup: was the server restarted, or the checkpoint \
                 removed? Take another backup",
                remote.name()
            );
            Error::new(ErrorKind::Unreachable, message)
        }
        _ => error,
    }
}

/// Checks that the target has all objects of the backup, and that the backup's mark is still there.
/// A prune with `--force` removes the mark, and may then remove the objects.
pub fn expect_there(target: &Target, backup: &Backup, mark: &InProgress<'_>) -> Result<()> {
    let there = objects(target)?;
    let gone = |piece: &&Piece| there.get(&piece.object) != Some(&piece.len());
    let gone = backup.pieces().find(gone).map(|piece| piece.object.clone());
    if gone.is_none() && mark.is_there()? {
        return Ok(());
    }
    let what = gone.unwrap_or_else(|| "the mark of this backup".to_owned());
    let message = format!(
        "{what} is gone: something was removed from the target beside this backup; take another"
    );
    Err(Error::new(ErrorKind::Busy, message))
}

/// The existing objects, with their sizes. Objects appear whole, so a backup that follows one that
/// was cut short reuses them.
fn objects(target: &Target) -> Result<HashMap<String, u64>> {
    let listed = target.list("files")?.into_iter();
    Ok(listed
        .map(|(name, size)| (format!("files/{name}"), size))
        .collect())
}

/// The SSTs of the tree and those that only the log names. They never change, and the manifest or
/// the log has their checksums. With those that are in the object store comes what the store knows
/// of them.
fn tables(tree: &ReadOnlyTree, log: &ReadOnlyLog) -> Vec<(StoredFile, Option<RemoteSst>)> {
    let file = |id: u64, meta: &FileMeta| {
        let remote = (meta.location == FileLocation::ObjectStore).then(|| meta.as_remote());
        let name = file_name(FileKind::Sst, id);
        let checksum = format!("{:016x}", meta.checksum);
        let piece = Piece {
            object: format!("files/{name}-{checksum}"),
            runs: vec![(0, meta.size)],
            checksum,
        };
        let stored = StoredFile {
            name,
            size: meta.size,
            pieces: vec![piece],
        };
        (stored, remote)
    };
    let state = &tree.state.files;
    let of_tree = state.iter().map(|(id, placed)| file(*id, &placed.meta));
    let of_log = log.files.iter().filter(|f| !state.contains_key(&f.file_id));
    of_tree
        .chain(of_log.map(|named| file(named.file_id, named)))
        .collect()
}

/// A file that may change after it was sent.
struct Changing {
    name: String,
    /// Start of the names of its objects.
    object: String,
    path: PathBuf,
    size: u64,
    /// Number of bytes to back up, from the start of the file. It is less than `size` if the rest
    /// is unused.
    len: u64,
}

/// The log segments that recovery needs, and the blob files.
fn changing(source: &Source, tree: &ReadOnlyTree, log: &ReadOnlyLog) -> Result<Vec<Changing>> {
    let mut files = Vec::new();
    let failed = |e: &std::io::Error| Error::io(e, source.dir.display());
    for entry in fs::read_dir(&source.dir).map_err(|e| failed(&e))? {
        let path = entry.map_err(|e| failed(&e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.into_owned();
        let segment = parse_segment_name(&name);
        let blob = matches!(parse_file_name(&name), Some((FileKind::Blob, _)));
        if segment.is_none_or(|id| id < tree.state.log_number) && !blob {
            continue;
        }
        let size = path.metadata().map_err(|e| Error::io(&e, &name))?.size();
        // Bytes of the last segment after the end of the log do not count.
        let len = match segment {
            Some(id) if id == log.end.last_segment && log.end.end_offset > 0 => {
                log.end.end_offset.next_multiple_of(BLOCK as u64).min(size)
            }
            _ => size,
        };
        files.push(Changing {
            object: name.clone(),
            name,
            path,
            size,
            len,
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// The files of the rest of the server. The names of their objects have a checksum of the path
/// instead of the path, because all objects lie in one folder.
fn of_server(source: &Source) -> Vec<Changing> {
    let files = source.server_copy.iter().flat_map(|copy| &copy.files);
    let changing = files.map(|file| Changing {
        object: format!("server-{:016x}", xxh3(file.name.as_bytes())),
        name: file.name.clone(),
        path: file.path.clone(),
        size: file.size,
        len: file.size,
    });
    changing.collect()
}
