//! The manifest file: a log of edits.
//!
//! Each record has a checksum, which covers the record's offset and the manifest's id too. So a
//! record that is read at a wrong offset or from another manifest fails the check.
//!
//! **Torn write or bit rot.** An edit must not vanish because a bit of the last record flipped:
//! once the edit is durable, the inputs of its compaction, or the log segments of its flush, are
//! deleted. So the writer syncs each record and then appends a *sync marker* (an empty record) and
//! syncs that too. Only then the edit is acknowledged. If a damaged record has a valid record or a
//! sync marker behind it, it was durable once: that is corruption. If nothing valid follows a
//! damaged record, its edit was never acknowledged: the manifest ends before it.
//!
//! Example: take `header, edit 1, marker, edit 2, marker, edit 3`. A flipped bit in edit 2 is
//! corruption. With a flipped bit in edit 3, the manifest ends after edit 2.
//!
//! Rejected: a synced length in the header, because rewriting it in place could tear the header;
//! and recognizing a torn write by zeros or a short file, because file systems differ in what they
//! leave.

use super::{Edit, ManifestState};
use crate::base::checksum::placed;
use crate::base::varint::{take_exact, take_u32_le, take_u64_le};
use crate::base::{Error, ErrorKind, Result, encryption_envelope};
use crate::env::{AppendFile, Env, ReadClass, ReadFile};
use crate::store::{DiskReserve, ReservePart};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FIRNMANI";
const FORMAT_VERSION: u32 = 1;
/// Format version of manifests whose edits are encrypted. This engine refuses them.
const ENCRYPTED_VERSION: u32 = 2;
/// Length of the file header in bytes: magic, format version, manifest id, checksum.
const HEADER_LEN: usize = 8 + 4 + 8 + 8;
/// Length of a record's header in bytes: checksum, payload length.
const RECORD_HEADER_LEN: usize = 8 + 4;
/// Bytes that are allocated behind the end of the current manifest, so that edits can be appended
/// to it on a full disk.
pub(super) const ROOM: u64 = 64 << 10;

/// The name of manifest `id`.
pub fn manifest_name(id: u64) -> String {
    format!("MANIFEST-{id:06}")
}

/// The suffix of a manifest's name while it is written beside the one in force. Its content lacks
/// the latest edits until it is put in force, so nothing must take it for a manifest.
const UNFINISHED: &str = ".next";

/// The name of manifest `id` while it is written beside the one in force.
pub(super) fn unfinished_name(id: u64) -> String {
    manifest_name(id) + UNFINISHED
}

/// Removes the manifests in `dir` that a killed process was writing beside the one in force.
/// `names` are the names in `dir`.
///
/// # Errors
/// `Io`.
pub(super) fn remove_unfinished(env: &dyn Env, dir: &Path, names: &[String]) -> Result<()> {
    for name in names {
        let manifest = name.strip_suffix(UNFINISHED).and_then(parse_manifest_name);
        if manifest.is_some() {
            env.remove(&dir.join(name))?;
        }
    }
    Ok(())
}

/// The id in a manifest's name; `None` if `name` is no such name.
pub fn parse_manifest_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("MANIFEST-")?;
    let id = digits.parse().ok()?;
    (manifest_name(id) == name).then_some(id)
}

fn header(id: u64) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    let sum = placed(&out, id, 0);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Checks the header of manifest `id`, called `name`.
fn check_header(bytes: &[u8], id: u64, name: &str) -> Result<()> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return Err(Error::corruption(name, 0, "cut header"));
    };
    let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    let sum = u64::from_le_bytes(header[20..].try_into().expect("eight bytes"));
    if &header[..8] != MAGIC || placed(&header[..20], id, 0) != sum {
        return Err(Error::corruption(name, 0, "damaged header"));
    }
    match version {
        FORMAT_VERSION => Ok(()),
        ENCRYPTED_VERSION => Err(encryption_envelope::refused(name)),
        newer => Err(Error::unsupported(format!(
            "{name}: format version {newer}"
        ))),
    }
}

/// Frames `payload` as a record at `offset` of manifest `id`.
fn frame(id: u64, offset: u64, payload: &[u8]) -> Result<Vec<u8>> {
    let len =
        u32::try_from(payload.len()).map_err(|_| Error::invalid("an edit of more than 4 GiB"))?;
    let mut out = vec![0; 8];
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(payload);
    let sum = placed(&out[8..], id, offset);
    out[..8].copy_from_slice(&sum.to_le_bytes());
    Ok(out)
}

/// The payload of the record at the start of `input`, if it is complete and valid.
fn unframe(id: u64, offset: u64, input: &[u8]) -> Option<&[u8]> {
    let mut rest = input;
    let sum = take_u64_le(&mut rest)?;
    let len = take_u32_le(&mut rest)? as usize;
    let payload = take_exact(&mut rest, len)?;
    let covered = &input[8..RECORD_HEADER_LEN + len];
    (placed(covered, id, offset) == sum).then_some(payload)
}

/// Appends edits to a manifest. After an error the caller must not append again.
pub(super) struct ManifestWriter {
    file: Box<dyn AppendFile>,
    id: u64,
    /// Offset in the file up to which disk space is allocated; `None` if the file system cannot
    /// allocate space ahead.
    room_end: Option<u64>,
}

impl ManifestWriter {
    /// Creates manifest `id` in `dir` with `first` as its first record, synced. The directory entry
    /// is not durable yet.
    pub(super) fn create(env: &dyn Env, dir: &Path, id: u64, first: &Edit) -> Result<Self> {
        let file = env.create(&dir.join(manifest_name(id)))?;
        Self::begin(file, id, None, &first.encode())
    }

    /// As [`Self::create`], but takes the file that the disk reserve keeps for a manifest. If its
    /// space is too small for the first record, the file is given back to the reserve.
    pub(super) fn create_in(
        reserve: &DiskReserve,
        dir: &Path,
        id: u64,
        first: &Edit,
    ) -> Result<Self> {
        let path = dir.join(manifest_name(id));
        let mut file = reserve.create(ReservePart::Manifest, &path)?;
        let first = first.encode();
        let bytes = (HEADER_LEN + 2 * RECORD_HEADER_LEN + first.len()) as u64;
        let mut room = bytes + ROOM;
        let mut found = file.allocate(room);
        if is_full(&found) {
            room = bytes;
            found = file.allocate(room);
        }
        let room_end = match found {
            Err(full) if *full.kind() == ErrorKind::NoSpace => {
                // Give the file back with size 0, because the allocated size is unknown here. The
                // reserve's file for manifests then counts as empty until the next fill of the
                // reserve allocates the missing space.
                reserve.give_back(ReservePart::Manifest, &path, 0)?;
                return Err(full);
            }
            found => found?.then_some(room),
        };
        Self::begin(file, id, room_end, &first)
    }

    /// As [`Self::create`], under the name [`unfinished_name`]. Allocates disk space for further
    /// edits behind the first record, too. Takes all space from the free space of the disk, not
    /// from the disk reserve.
    pub(super) fn create_unfinished(
        env: &dyn Env,
        dir: &Path,
        id: u64,
        first: &Edit,
    ) -> Result<Self> {
        let mut file = env.create(&dir.join(unfinished_name(id)))?;
        let first = first.encode();
        let room = (HEADER_LEN + 2 * RECORD_HEADER_LEN + first.len()) as u64 + ROOM;
        let room_end = file.allocate(room)?.then_some(room);
        Self::begin(file, id, room_end, &first)
    }

    fn begin(
        file: Box<dyn AppendFile>,
        id: u64,
        room_end: Option<u64>,
        first: &[u8],
    ) -> Result<Self> {
        let mut writer = Self { file, id, room_end };
        writer.file.append(&header(id))?;
        writer.append(first)?;
        writer.append(&[])?;
        writer.file.sync()?;
        Ok(writer)
    }

    /// Makes sure that disk space is allocated for `edit` and its sync marker, with `left` bytes
    /// behind them. Writes nothing.
    ///
    /// # Errors
    /// `NoSpace`: the manifest is unchanged.
    pub(super) fn find_room(&mut self, edit: &Edit, left: u64) -> Result<()> {
        let Some(room_end) = self.room_end else {
            return Ok(());
        };
        let bytes = (2 * RECORD_HEADER_LEN + edit.encode().len()) as u64;
        let end = self.file.len() + bytes;
        if end + ROOM / 2 <= room_end {
            return Ok(());
        }
        match self.file.allocate(bytes + ROOM) {
            Ok(true) => self.room_end = Some(end + ROOM),
            Ok(false) => self.room_end = None,
            Err(e) if *e.kind() == ErrorKind::NoSpace && end + left <= room_end => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Appends an edit and syncs. On return it is durable, but until [`Self::write_sync_marker`]
    /// has returned, damage to its record passes for a torn write.
    pub(super) fn add(&mut self, edit: &Edit) -> Result<()> {
        self.append(&edit.encode())?;
        self.file.sync()
    }

    /// Appends edits to a manifest that is not in force yet, and syncs once.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the manifest must not be put in force.
    pub(super) fn add_all(&mut self, edits: &[Edit]) -> Result<()> {
        for edit in edits {
            self.find_room(edit, 0)?;
            self.append(&edit.encode())?;
            self.append(&[])?;
        }
        match edits.is_empty() {
            true => Ok(()),
            false => self.file.sync(),
        }
    }

    /// Appends a sync marker, which proves that all records before it are durable, and syncs.
    pub(super) fn write_sync_marker(&mut self) -> Result<()> {
        self.append(&[])?;
        self.file.sync()
    }

    /// The manifest's id.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Length of the manifest, bytes.
    pub(super) fn len(&self) -> u64 {
        self.file.len()
    }

    fn append(&mut self, payload: &[u8]) -> Result<()> {
        let record = frame(self.id, self.file.len(), payload)?;
        self.file.append(&record)
    }
}

fn is_full<T>(tried: &Result<T>) -> bool {
    matches!(tried, Err(e) if *e.kind() == ErrorKind::NoSpace)
}

/// Reads edits in order, even while the manifest is being written.
pub struct ManifestReader {
    file: Arc<dyn ReadFile>,
    name: String,
    id: u64,
    offset: u64,
    end: u64,
}

impl ManifestReader {
    /// Opens manifest `id` in `dir` and checks its header.
    ///
    /// # Errors
    /// `Corruption` if the header is damaged, `Unsupported` for a later format version.
    pub fn open(env: &dyn Env, dir: &Path, id: u64) -> Result<Self> {
        let name = manifest_name(id);
        let file = env.open(&dir.join(&name))?;
        let mut bytes = vec![0; file.size()?.min(HEADER_LEN as u64) as usize];
        file.read_exact_at(ReadClass::Log, 0, &mut bytes)?;
        check_header(&bytes, id, &name)?;
        let offset = HEADER_LEN as u64;
        Ok(Self {
            file,
            name,
            id,
            offset,
            end: offset,
        })
    }

    /// Returns the edits appended since the last call. With `marked_only`, it returns an edit only
    /// once the sync marker behind it is there. Followers of another process's manifest need that:
    /// without the marker, recovery of the writer may still drop the edit.
    ///
    /// # Errors
    /// `Corruption` if a damaged record has a valid one behind it. `Unsupported` for an edit of a
    /// later format. `Io`.
    pub fn poll(&mut self, marked_only: bool) -> Result<Vec<Edit>> {
        self.end = self.file.size()?;
        let len = self.end.saturating_sub(self.offset);
        let mut bytes = vec![0; len as usize];
        self.file
            .read_exact_at(ReadClass::Log, self.offset, &mut bytes)?;
        let mut edits = Vec::new();
        let mut taken = 0;
        let mut at = 0;
        while let Some(payload) = unframe(self.id, self.offset + at as u64, &bytes[at..]) {
            if payload.is_empty() {
                taken = edits.len();
            } else {
                edits.push((
                    at,
                    Edit::decode(payload, &self.name, self.offset + at as u64)?,
                ));
            }
            at += RECORD_HEADER_LEN + payload.len();
        }
        let base = self.offset;
        if let Some(valid) = (at + 1..bytes.len())
            .find(|&i| unframe(self.id, base + i as u64, &bytes[i..]).is_some())
        {
            let valid = base + valid as u64;
            let what = format!("damaged record; the one at {valid} is valid");
            return Err(Error::corruption(&self.name, base + at as u64, what));
        }
        if marked_only && taken < edits.len() {
            at = edits[taken].0;
            edits.truncate(taken);
        }
        self.offset += at as u64;
        Ok(edits.into_iter().map(|(_, edit)| edit).collect())
    }

    /// Returns all intact edits of manifest `id`, and whether its first record is intact. Reports
    /// each damaged part, or a file that cannot be read, to `lost`.
    ///
    /// # Errors
    /// `Unsupported` for a later format. `Corruption` if a record's checksum is right but its
    /// content is malformed.
    pub(super) fn salvage(
        env: &dyn Env,
        dir: &Path,
        id: u64,
        lost: &mut dyn FnMut(Error),
    ) -> Result<(Vec<Edit>, bool)> {
        let name = manifest_name(id);
        let mut bytes = Vec::new();
        let read = env.open(&dir.join(&name)).and_then(|file| {
            bytes.resize(file.size()? as usize, 0);
            file.read_exact_at(ReadClass::Log, 0, &mut bytes)
        });
        if let Err(error) = read {
            lost(Error::corruption(&name, 0, error));
            return Ok((Vec::new(), false));
        }
        match check_header(&bytes, id, &name) {
            Err(error) if error.is_corruption() => lost(error),
            checked => checked?,
        }
        let mut edits = Vec::new();
        let mut at = HEADER_LEN;
        let begins = bytes.len() > at && unframe(id, at as u64, &bytes[at..]).is_some();
        while at < bytes.len() {
            if let Some(payload) = unframe(id, at as u64, &bytes[at..]) {
                if !payload.is_empty() {
                    edits.push(Edit::decode(payload, &name, at as u64)?);
                }
                at += RECORD_HEADER_LEN + payload.len();
                continue;
            }
            let valid = |i: &usize| unframe(id, *i as u64, &bytes[*i..]).is_some();
            let next = (at + 1..bytes.len()).find(valid);
            lost(Error::corruption(&name, at as u64, "edits are lost"));
            at = next.unwrap_or(bytes.len());
        }
        Ok((edits, begins))
    }

    /// Number of bytes behind the last record that was read: a torn write, or one in progress.
    pub fn unread(&self) -> u64 {
        self.end - self.offset
    }

    /// File name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }
}

const CURRENT: &str = "CURRENT";
const CURRENT_TEMP: &str = "CURRENT.tmp";

fn current_text(id: u64) -> String {
    let name = manifest_name(id);
    let sum = placed(name.as_bytes(), id, 0);
    format!("{name} {sum:016x}\n")
}

/// The id of the manifest that `CURRENT` names; `None` if there is no `CURRENT`.
///
/// # Errors
/// `Corruption` if `CURRENT` is damaged; `Io`.
pub fn read_current(env: &dyn Env, dir: &Path) -> Result<Option<u64>> {
    let file = match env.open(&dir.join(CURRENT)) {
        Ok(file) => file,
        Err(e) if *e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = vec![0; file.size()?.min(1024) as usize];
    file.read_exact_at(ReadClass::Log, 0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let id = text.split(' ').next().and_then(parse_manifest_name);
    match id {
        Some(id) if current_text(id) == text => Ok(Some(id)),
        _ => Err(Error::corruption(CURRENT, 0, "names no manifest")),
    }
}

/// A file that is to replace `CURRENT`. It is empty, and space for the name of manifest `id` is
/// allocated.
pub(super) struct NextCurrent {
    file: Box<dyn AppendFile>,
    id: u64,
}

impl NextCurrent {
    /// Creates the file, in the space of `reserve` if there is one. If that space is too small, the
    /// file is given back to the reserve.
    ///
    /// # Errors
    /// Those of the file system. After an error `CURRENT` is unchanged.
    pub(super) fn create(
        env: &dyn Env,
        dir: &Path,
        id: u64,
        reserve: Option<&DiskReserve>,
    ) -> Result<Self> {
        let temp = dir.join(CURRENT_TEMP);
        let Some(reserve) = reserve else {
            let file = env.create(&temp)?;
            return Ok(Self { file, id });
        };
        // The file in the reserve may have been `CURRENT` until a process was killed before it
        // synced the rename. Emptying it before that rename is durable would leave an empty
        // `CURRENT` after a power cut.
        env.sync_dir(dir)?;
        let file = reserve.create(ReservePart::Current, &temp)?;
        let mut next = Self { file, id };
        let found = next.file.allocate(current_text(id).len() as u64);
        if is_full(&found) {
            next.give_back(env, dir, Some(reserve))?;
        }
        found.map(|_| next)
    }

    /// Gives the unused file back to the disk reserve that its space came from; without a reserve,
    /// removes the file.
    pub(super) fn give_back(
        &self,
        env: &dyn Env,
        dir: &Path,
        reserve: Option<&DiskReserve>,
    ) -> Result<()> {
        let temp = dir.join(CURRENT_TEMP);
        match reserve {
            Some(reserve) => reserve.give_back(ReservePart::Current, &temp, 0),
            None => env.remove(&temp),
        }
    }

    /// Puts the manifest in force by renaming this file to `CURRENT`. The content of the manifest
    /// must be synced; this function makes its directory entry durable first. The room of the
    /// replaced `CURRENT` goes to the reserve.
    ///
    /// # Errors
    /// Those of the file system. After an error either manifest may be in force after a restart.
    pub(super) fn switch(
        mut self,
        env: &dyn Env,
        dir: &Path,
        reserve: Option<&DiskReserve>,
    ) -> Result<()> {
        env.sync_dir(dir)?;
        self.file.append(current_text(self.id).as_bytes())?;
        self.file.sync()?;
        let current = dir.join(CURRENT);
        let kept = reserve.filter(|r| r.keep_replaced(ReservePart::Current, &current));
        env.rename(&dir.join(CURRENT_TEMP), &current)?;
        env.sync_dir(dir)?;
        if let Some(reserve) = kept {
            reserve.replaced(ReservePart::Current);
        }
        Ok(())
    }
}

/// Clears away the files that a killed start has made in the space of the disk reserve: those
/// manifests of `ids` that are not in force, and the file that was to replace `CURRENT`. Their disk
/// space goes back to the reserve.
///
/// # Errors
/// Those of the file system.
pub(super) fn clear_unfinished(
    env: &dyn Env,
    dir: &Path,
    ids: &[u64],
    reserve: Option<&DiskReserve>,
) -> Result<()> {
    // The rename of `CURRENT` may not be durable yet. Sync it first; otherwise a power cut could
    // bring back a `CURRENT` that names a manifest removed here.
    env.sync_dir(dir)?;
    let in_force = read_current(env, dir)?;
    let strays = ids.iter().filter(|&&id| Some(id) != in_force);
    let strays = strays.map(|&id| (ReservePart::Manifest, dir.join(manifest_name(id))));
    for (part, path) in strays.chain([(ReservePart::Current, dir.join(CURRENT_TEMP))]) {
        match clear_away(env, &path, part, reserve) {
            Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes a file that nothing needs any more. If the disk reserve lacks `part`, the file becomes
/// that part instead: between a removal and the next fill of the reserve, another program could
/// take its space.
///
/// # Errors
/// `NotFound`, `Io`.
pub(super) fn clear_away(
    env: &dyn Env,
    path: &Path,
    part: ReservePart,
    reserve: Option<&DiskReserve>,
) -> Result<()> {
    match reserve.is_some_and(|reserve| reserve.inherit(part, path)) {
        true => Ok(()),
        false => env.remove(path),
    }
}

/// Writes `state` as the first manifest of a new database in `dir` and puts it in force. It is
/// durable on return.
///
/// # Errors
/// `NoSpace`, `Io`. After an error a manifest may be left behind, and it may be in force.
pub fn create_manifest(env: &dyn Env, dir: &Path, state: &ManifestState) -> Result<()> {
    let mut state = state.clone();
    let id = state.next_file_id;
    state.next_file_id += 1;
    ManifestWriter::create(env, dir, id, &state.snapshot())?;
    NextCurrent::create(env, dir, id, None)?.switch(env, dir, None)
}

#[cfg(test)]
mod tests;
