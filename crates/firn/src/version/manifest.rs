//! The manifest file: a log of edits.
//!
//! Each record carries a checksum that covers its offset and the manifest's id, so a record read at
//! a wrong offset or from another manifest fails the check.
//!
//! **Torn tail or rot.** An edit must not vanish because a bit of the last record flipped: once the
//! edit is durable, the inputs of its compaction, or the log segments of its flush, are gone. So
//! the writer syncs each record and then appends a *mark* (an empty record), which it syncs before
//! the edit counts. A damaged record with a valid record or mark behind it was durable once: that
//! is corruption. A damaged record with nothing valid behind it is an edit that was never
//! acknowledged: the manifest ends there.
//!
//! Example: `header, edit 1, mark, edit 2, mark, edit 3` with a flipped bit in edit 2 is
//! corruption; with a flipped bit in edit 3 it ends after edit 2.
//!
//! Rejected: a synced length in the header (it rewrites in place bytes that must not be torn), and
//! recognizing a torn write by zeros or a short file (file systems differ).

use super::{Edit, ManifestState};
use crate::base::checksum::placed;
use crate::base::varint::{take_exact, take_u32_le, take_u64_le};
use crate::base::{Error, ErrorKind, Result, encryption_envelope};
use crate::env::{AppendFile, Env, ReadFile};
use crate::store::{DiskReserve, ReservePart};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FIRNMANI";
const FORMAT_VERSION: u32 = 1;
/// Version of manifests whose edits are encrypted.
const ENCRYPTED_VERSION: u32 = 2;
/// Magic, format version, file id, checksum.
const HEADER_LEN: usize = 8 + 4 + 8 + 8;
/// Checksum, length.
const RECORD_HEADER_LEN: usize = 8 + 4;
/// Bytes set aside behind the end of the manifest in force, so that it can take edits on a full
/// disk.
pub(super) const ROOM: u64 = 64 << 10;

/// The name of manifest `id`.
pub fn manifest_name(id: u64) -> String {
    format!("MANIFEST-{id:06}")
}

/// The id in a manifest's name.
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
    /// Offset up to which space is set aside; `None` if the file system sets none aside.
    room_end: Option<u64>,
}

impl ManifestWriter {
    /// Creates manifest `id` in `dir` with `first` as its first record, synced. The directory entry
    /// is not durable yet.
    pub(super) fn create(env: &dyn Env, dir: &Path, id: u64, first: &Edit) -> Result<Self> {
        let file = env.create(&dir.join(manifest_name(id)))?;
        Self::begin(file, id, None, &first.encode())
    }

    /// As [`Self::create`], in the room of the reserve, which has the file again if that is too
    /// small.
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
                // How many bytes it has, the next fill finds out.
                reserve.give_back(ReservePart::Manifest, &path, 0)?;
                return Err(full);
            }
            found => found?.then_some(room),
        };
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

    /// Makes sure that there is space for `edit` and its mark, and `left` bytes behind them. Writes
    /// nothing.
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
    /// damage to it passes for a torn write.
    pub(super) fn add(&mut self, edit: &Edit) -> Result<()> {
        self.append(&edit.encode())?;
        self.file.sync()
    }

    /// Appends a mark, which proves that all records before it are durable, and syncs.
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
        file.read_exact_at(0, &mut bytes)?;
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

    /// The edits written since the last call. With `marked_only`, an edit is returned only once the
    /// mark behind it is there. Followers need that: without a mark, the writer's recovery may
    /// still drop the edit.
    ///
    /// # Errors
    /// `Corruption` if a record that was durable once is damaged. `Unsupported` for an edit of a
    /// later format. `Io`.
    pub fn poll(&mut self, marked_only: bool) -> Result<Vec<Edit>> {
        self.end = self.file.size()?;
        let len = self.end.saturating_sub(self.offset);
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(self.offset, &mut bytes)?;
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

    /// All intact edits of manifest `id`, and whether the first record is among them. Each damaged
    /// part, or a file that cannot be read, goes to `lost`.
    ///
    /// # Errors
    /// `Unsupported` for a later format. `Corruption` if a record is malformed though its checksum
    /// is right.
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
            file.read_exact_at(0, &mut bytes)
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

    /// Bytes behind the last valid record: a torn write, or one in progress.
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

/// The id of the manifest in force; `None` if there is no `CURRENT`.
///
/// # Errors
/// `Corruption` if the file is damaged; `Io`.
pub fn read_current(env: &dyn Env, dir: &Path) -> Result<Option<u64>> {
    let file = match env.open(&dir.join(CURRENT)) {
        Ok(file) => file,
        Err(e) if *e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = vec![0; file.size()?.min(1024) as usize];
    file.read_exact_at(0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let id = text.split(' ').next().and_then(parse_manifest_name);
    match id {
        Some(id) if current_text(id) == text => Ok(Some(id)),
        _ => Err(Error::corruption(CURRENT, 0, "names no manifest")),
    }
}

/// The file that is to be `CURRENT`, empty, with room for the name of manifest `id`.
pub(super) struct NextCurrent {
    file: Box<dyn AppendFile>,
    id: u64,
}

impl NextCurrent {
    /// Creates it, in the room of the reserve if there is one, which has the file again if that is
    /// too small.
    ///
    /// # Errors
    /// Those of the file system: `CURRENT` is as it was.
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
        let file = reserve.create(ReservePart::Current, &temp)?;
        let mut next = Self { file, id };
        let found = next.file.allocate(current_text(id).len() as u64);
        if is_full(&found) {
            next.give_back(env, dir, Some(reserve))?;
        }
        found.map(|_| next)
    }

    /// Gives the file to the reserve, whose room it has.
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

    /// Makes the manifest the one in force. Its file is synced; its name becomes durable here.
    ///
    /// # Errors
    /// After an error either manifest may be the one in force after a restart.
    pub(super) fn switch(mut self, env: &dyn Env, dir: &Path) -> Result<()> {
        env.sync_dir(dir)?;
        self.file.append(current_text(self.id).as_bytes())?;
        self.file.sync()?;
        env.rename(&dir.join(CURRENT_TEMP), &dir.join(CURRENT))?;
        env.sync_dir(dir)
    }
}

/// Removes what a start that was killed has made of the reserve: manifests, of `ids`, that are not
/// in force, and the file that was to name one.
///
/// # Errors
/// Those of the file system.
pub(super) fn clear_unfinished(env: &dyn Env, dir: &Path, ids: &[u64]) -> Result<()> {
    // CURRENT may have been renamed and not be durable: then either manifest may be in force after
    // a power cut.
    env.sync_dir(dir)?;
    let in_force = read_current(env, dir)?;
    let strays = ids.iter().filter(|&&id| Some(id) != in_force);
    let strays = strays.map(|&id| dir.join(manifest_name(id)));
    for path in strays.chain([dir.join(CURRENT_TEMP)]) {
        match env.remove(&path) {
            Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Writes `state` as the manifest of a new database in `dir` and puts it in force. Durable on
/// return.
///
/// # Errors
/// `NoSpace`, `Io`. After an error a manifest may be left, in force or not.
pub fn create_manifest(env: &dyn Env, dir: &Path, state: &ManifestState) -> Result<()> {
    let mut state = state.clone();
    let id = state.next_file_id;
    state.next_file_id += 1;
    ManifestWriter::create(env, dir, id, &state.snapshot())?;
    NextCurrent::create(env, dir, id, None)?.switch(env, dir)
}

#[cfg(test)]
mod tests;
