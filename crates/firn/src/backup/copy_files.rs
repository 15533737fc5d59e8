//! Links and copies files of a database.

use crate::base::checksum::xxh3;
use crate::base::{ErrorKind, Result};
use crate::env::{BLOCK, Env, ReadClass};
use std::ops::Range;
use std::path::Path;

/// Bytes per read while copying.
const CHUNK: usize = 1 << 20;

/// Links `from` as `to`, or copies it where the file system has no links. Returns the bytes copied.
pub(super) fn link_or_copy(env: &dyn Env, from: &Path, to: &Path) -> Result<u64> {
    match env.link(from, to) {
        Ok(()) => Ok(0),
        Err(error) if *error.kind() == ErrorKind::Unsupported => copy(env, from, to, u64::MAX),
        Err(error) => Err(error),
    }
}

/// Copies the first `len` bytes of a file, or the whole file if it has fewer. Skips blocks of
/// zeros, so that holes stay holes. On return the content of the copy is durable, but its name is
/// not. Returns the bytes copied.
pub(super) fn copy(env: &dyn Env, from: &Path, to: &Path, len: u64) -> Result<u64> {
    copy_changed(env, from, to, len, &mut Vec::new())
}

/// As [`copy`], but updates an older copy in `to`. `known` has the checksum of each chunk of the
/// older copy, and is empty if there is none. Copies only the chunks of `from` that now have
/// another checksum, and replaces their checksums in `known`. After an error, the checksums in
/// `known` are meaningless. Requires that each byte of `from` changes at most once, from zero to
/// its final value, because a block that became zeros would not be copied.
pub(super) fn copy_changed(
    env: &dyn Env,
    from: &Path,
    to: &Path,
    len: u64,
    known: &mut Vec<u64>,
) -> Result<u64> {
    let source = env.open(from)?;
    let size = source.size()?.min(len);
    let copy = env.open_spans(to, known.is_empty())?;
    let mut chunk = vec![0; CHUNK.min(size as usize)];
    let (mut at, mut copied) = (0, 0);
    while at < size {
        let len = (size - at).min(CHUNK as u64) as usize;
        let chunk = &mut chunk[..len];
        source.read_exact_at(ReadClass::Backup, at, chunk)?;
        let (number, checksum) = ((at / CHUNK as u64) as usize, xxh3(chunk));
        if known.get(number) != Some(&checksum) {
            // Always write the last block of the file, even if it is all zeros: that write gives
            // the copy its length.
            for run in blocks_in_use(chunk, at + len as u64 == size) {
                copied += run.len() as u64;
                copy.write_at(at + run.start as u64, &chunk[run])?;
            }
            match known.get_mut(number) {
                Some(known) => *known = checksum,
                None => known.push(checksum),
            }
        }
        at += len as u64;
    }
    copy.sync()?;
    Ok(copied)
}

/// The longest ranges of `bytes` in which each block has a byte other than zero. With `last`, the
/// last block of `bytes` belongs to a range even if it is all zeros.
fn blocks_in_use(bytes: &[u8], last: bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for from in (0..bytes.len()).step_by(BLOCK) {
        let to = bytes.len().min(from + BLOCK);
        if bytes[from..to].iter().all(|&byte| byte == 0) && !(last && to == bytes.len()) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == from => run.end = to,
            _ => runs.push(from..to),
        }
    }
    runs
}

/// The content of a small text file, at most 64 KiB; `None` if it does not exist.
pub(super) fn read_text(env: &dyn Env, path: &Path) -> Result<Option<String>> {
    let file = match env.open(path) {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; file.size()?.min(64 << 10) as usize];
    file.read_exact_at(ReadClass::Backup, 0, &mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Creates or replaces a small text file, atomically and durably.
pub(super) fn write_text(env: &dyn Env, dir: &Path, name: &str, text: &str) -> Result<()> {
    let aside = dir.join(format!("{name}.tmp"));
    let mut file = env.create(&aside)?;
    file.append(text.as_bytes())?;
    file.sync()?;
    drop(file);
    env.rename(&aside, &dir.join(name))?;
    env.sync_dir(dir)
}
