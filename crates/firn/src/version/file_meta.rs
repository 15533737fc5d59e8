//! The metadata of an SST that the manifest keeps.

use crate::base::blob_ref::BlobUse;
use crate::base::key_range::KeyRange;
use crate::base::varint::{
    put_bytes, put_u64, take_bytes, take_u8, take_u32, take_u64, take_u64_le,
};
use crate::base::work_count;
use crate::base::{Error, IndexId, Result, Seqno};
use crate::sst::{IndexStats, SstSummary};
use crate::store::RemoteSst;

/// Flag: the file was written with the layout and the codec of the last level.
const FLAG_AT_REST: u64 = 1;
/// Flag: the encoding has the number of dense deletions.
const FLAG_DENSE: u64 = 2;
/// Flag: the encoding has the external seqno.
const FLAG_EXTERNAL_SEQNO: u64 = 4;
/// Flag: the encoding has the list of referenced blob files.
const FLAG_BLOBS: u64 = 8;
/// Flag: the encoding has the location of the file and the length of its tail.
const FLAG_LOCATION: u64 = 16;

const FLAGS: u64 = FLAG_AT_REST | FLAG_DENSE | FLAG_EXTERNAL_SEQNO | FLAG_BLOBS | FLAG_LOCATION;

/// An SST that refers to this many blob files counts as full; its writer begins another one. The
/// manifest names all blob files of each SST, so without a bound an edit could grow with the
/// database.
///
/// A lower bound would lengthen the manifest as a whole: large values that came in random order lie
/// in all blob files, so each half of a file names nearly as many of them as the whole file. This
/// bound is reached in databases with more than eight terabytes of large values.
pub const BLOB_FILES_MAX: usize = 1 << 15;

/// Where an SST is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileLocation {
    /// In the data directory.
    #[default]
    Local,
    /// In an object store.
    ObjectStore,
}

/// The metadata of an SST in the manifest. Only where the file is may change, by an edit of
/// [`super::VersionSet::relocate`]; a file that moves to another level keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// File id, never reused. The file name derives from it.
    pub file_id: u64,
    /// Size of the file in bytes, compressed.
    pub size: u64,
    /// Checksum of the whole file, which copies and backups verify.
    pub checksum: u64,
    /// Smallest user key, inclusive.
    pub smallest: Vec<u8>,
    /// Largest user key, inclusive.
    pub largest: Vec<u8>,
    /// Smallest seqno of the entries.
    pub min_seqno: Seqno,
    /// Largest seqno of the entries.
    pub max_seqno: Seqno,
    /// Number of entries, deletions included.
    pub entries: u64,
    /// Number of entries that are deletions.
    pub deletes: u64,
    /// Number of deletions in blocks that hold little else. A scan must step over them and finds no
    /// rows there.
    pub dense_deletes: u64,
    /// Number of entries that have a newer version of the same user key in this file. They were
    /// kept for a snapshot and become garbage once that snapshot is released.
    pub superseded: u64,
    /// Bytes of the keys and values before compression.
    pub raw_bytes: u64,
    /// Whether the file was written with the layout and the codec of the last level.
    pub at_rest: bool,
    /// Set if the file was written before the commit that made it visible: the seqno of that
    /// commit. It holds for all entries and overrides the seqnos stored in the file. `min_seqno`
    /// and `max_seqno` equal it, and each user key has one version.
    pub external_seqno: Option<Seqno>,
    /// Statistics for each index with entries in the file, ascending by index id.
    pub per_index: Vec<IndexStats>,
    /// The blobs that entries of the file refer to, ascending by blob file id.
    pub blobs: Vec<BlobUse>,
    /// Where the file is stored.
    pub location: FileLocation,
    /// Bytes behind the data blocks: index, filters, properties, footer. A reader that knows this
    /// length opens the file with one read. 0 if the file was written before the manifest recorded
    /// the length.
    pub tail_len: u64,
}

impl FileMeta {
    /// The metadata of a file that was just written to the data directory.
    pub fn from_summary(summary: SstSummary, superseded: u64, at_rest: bool) -> Self {
        Self {
            file_id: summary.file_id,
            size: summary.size,
            checksum: summary.checksum,
            smallest: summary.smallest,
            largest: summary.largest,
            min_seqno: summary.min_seqno,
            max_seqno: summary.max_seqno,
            entries: summary.entries,
            deletes: summary.deletes,
            dense_deletes: summary.dense_deletes,
            superseded,
            raw_bytes: summary.raw_bytes,
            at_rest,
            external_seqno: None,
            per_index: summary.per_index,
            blobs: summary.blobs,
            location: FileLocation::Local,
            tail_len: summary.tail_len,
        }
    }

    /// Returns these metadata with `seqno` as the external seqno of the file, and so as the
    /// smallest and largest seqno of its entries.
    pub fn with_external_seqno(self, seqno: Seqno) -> Self {
        Self {
            min_seqno: seqno,
            max_seqno: seqno,
            external_seqno: Some(seqno),
            ..self
        }
    }

    /// The file as the object store knows it.
    pub fn as_remote(&self) -> RemoteSst {
        RemoteSst {
            id: self.file_id,
            bytes: self.size,
            checksum: self.checksum,
            tail_bytes: self.tail_len,
        }
    }

    /// Checks that the file is in the data directory.
    ///
    /// # Errors
    /// `Unsupported` if it is elsewhere.
    pub fn check_local(&self) -> Result<()> {
        match self.location {
            FileLocation::Local => Ok(()),
            FileLocation::ObjectStore => Err(Error::unsupported(format!(
                "SST {} lies in an object store, and here only files of the data directory can be used",
                self.file_id
            ))),
        }
    }

    /// Whether `moved` describes this same file, perhaps in another location or with a tail length
    /// that was unknown before.
    pub fn is_same_file(&self, moved: &Self) -> bool {
        let back = Self {
            location: self.location,
            tail_len: self.tail_len,
            ..moved.clone()
        };
        *self == back
    }

    /// The range of user keys from the smallest to the largest, both inclusive.
    pub fn range(&self) -> KeyRange {
        KeyRange {
            smallest: self.smallest.clone(),
            largest: self.largest.clone(),
        }
    }

    /// Whether the file may hold a key from `smallest` to `largest`, both inclusive.
    pub fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.smallest.as_slice() <= largest && smallest <= self.largest.as_slice()
    }

    /// Total bytes of the blobs that entries of the file refer to.
    pub fn blob_bytes(&self) -> u64 {
        let all = self.blobs.iter().map(|blobs| blobs.bytes);
        all.fold(0, u64::saturating_add)
    }

    /// Statistics of `index` in this file; `None` if the file has no entry of it.
    pub fn index(&self, index: IndexId) -> Option<&IndexStats> {
        let at = self.per_index.binary_search_by_key(&index, |s| s.index);
        at.ok().map(|i| &self.per_index[i])
    }

    /// Appends the encoding described in `docs/formats/manifest.md`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        work_count::file_seen();
        put_u64(out, self.file_id);
        put_u64(out, self.size);
        out.extend_from_slice(&self.checksum.to_le_bytes());
        let at_rest = if self.at_rest { FLAG_AT_REST } else { 0 };
        let dense = if self.dense_deletes > 0 {
            FLAG_DENSE
        } else {
            0
        };
        let external = match self.external_seqno {
            Some(_) => FLAG_EXTERNAL_SEQNO,
            None => 0,
        };

        let blobs = if self.blobs.is_empty() { 0 } else { FLAG_BLOBS };
        let location = match (self.location, self.tail_len) {
            (FileLocation::Local, 0) => 0,
            _ => FLAG_LOCATION,
        };
        put_u64(out, at_rest | dense | external | blobs | location);
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        for number in [
            self.min_seqno,
            self.max_seqno,
            self.entries,
            self.deletes,
            self.superseded,
            self.raw_bytes,
            self.per_index.len() as u64,
        ] {
            put_u64(out, number);
        }
        for s in &self.per_index {
            put_u64(out, u64::from(s.index));
            for number in [s.entries, s.deletes, s.raw_bytes, s.stored_bytes] {
                put_u64(out, number);
            }
        }
        if self.dense_deletes > 0 {
            put_u64(out, self.dense_deletes);
        }
        if let Some(seqno) = self.external_seqno {
            put_u64(out, seqno);
        }
        if !self.blobs.is_empty() {
            put_u64(out, self.blobs.len() as u64);
            for blobs in &self.blobs {
                for number in [blobs.file, blobs.refs, blobs.bytes] {
                    put_u64(out, number);
                }
            }
        }
        if location != 0 {
            out.push(match self.location {
                FileLocation::Local => 0,
                FileLocation::ObjectStore => 1,
            });
            put_u64(out, self.tail_len);
        }
    }

    /// The encodings of `files`, one after another.
    pub fn encode_all(files: &[FileMeta]) -> Vec<u8> {
        let mut out = Vec::new();
        files.iter().for_each(|meta| meta.encode(&mut out));
        out
    }

    /// Decodes the output of [`Self::encode_all`]; `None` if it is malformed.
    ///
    /// # Errors
    /// `Unsupported` for a flag or a location of a later format.
    pub fn decode_all(mut input: &[u8]) -> Result<Option<Vec<FileMeta>>> {
        let mut files = Vec::new();
        while !input.is_empty() {
            match Self::decode(&mut input)? {
                Some(meta) => files.push(meta),
                None => return Ok(None),
            }
        }
        Ok(Some(files))
    }

    /// Decodes the metadata of one file from the front of `input` and advances `input` behind it;
    /// `Ok(None)` if the encoding is malformed.
    ///
    /// # Errors
    /// `Unsupported` for a flag or a file location of a later format.
    pub(super) fn decode(input: &mut &[u8]) -> Result<Option<Self>> {
        let Some((meta, flags, location)) = Self::take(input) else {
            return Ok(None);
        };
        let id = meta.file_id;
        if flags & !FLAGS != 0 {
            return Err(Error::unsupported(format!(
                "flags {flags:#x} of SST {id} in the manifest"
            )));
        }
        if location > 1 {
            return Err(Error::unsupported(format!(
                "location {location} of SST {id} in the manifest"
            )));
        }
        Ok(Some(meta))
    }

    /// Decodes the metadata of one file. Returns them with the flags and the number of the
    /// location, which the caller must check. `None` if the encoding is malformed.
    fn take(input: &mut &[u8]) -> Option<(Self, u64, u8)> {
        let file_id = take_u64(input)?;
        let size = take_u64(input)?;
        let checksum = take_u64_le(input)?;
        let flags = take_u64(input)?;
        let mut location = 0;
        let mut meta = Self {
            file_id,
            size,
            checksum,
            smallest: take_bytes(input)?.to_vec(),
            largest: take_bytes(input)?.to_vec(),
            min_seqno: take_u64(input)?,
            max_seqno: take_u64(input)?,
            entries: take_u64(input)?,
            deletes: take_u64(input)?,
            dense_deletes: 0,
            superseded: take_u64(input)?,
            raw_bytes: take_u64(input)?,
            at_rest: flags & FLAG_AT_REST != 0,
            external_seqno: None,
            per_index: Vec::new(),
            blobs: Vec::new(),
            location: FileLocation::Local,
            tail_len: 0,
        };
        for _ in 0..take_u64(input)? {
            meta.per_index.push(IndexStats {
                index: take_u32(input)?,
                entries: take_u64(input)?,
                deletes: take_u64(input)?,
                raw_bytes: take_u64(input)?,
                stored_bytes: take_u64(input)?,
            });
        }
        if flags & FLAG_DENSE != 0 {
            meta.dense_deletes = take_u64(input)?;
        }
        if flags & FLAG_EXTERNAL_SEQNO != 0 {
            meta.external_seqno = Some(take_u64(input)?);
        }
        if flags & FLAG_BLOBS != 0 {
            for _ in 0..take_u64(input)? {
                meta.blobs.push(BlobUse {
                    file: take_u64(input)?,
                    refs: take_u64(input)?,
                    bytes: take_u64(input)?,
                });
            }
        }
        if flags & FLAG_LOCATION != 0 {
            location = take_u8(input)?;
            if location == 1 {
                meta.location = FileLocation::ObjectStore;
            }
            meta.tail_len = take_u64(input)?;
        }
        Some((meta, flags, location))
    }
}
