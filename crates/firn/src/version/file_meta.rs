//! The metadata of an SST that the manifest keeps.

use crate::base::blob_ref::BlobUse;
use crate::base::key_range::KeyRange;
use crate::base::varint::{
    put_bytes, put_u64, take_bytes, take_u8, take_u32, take_u64, take_u64_le,
};
use crate::base::{Error, IndexId, Result, Seqno};
use crate::sst::{IndexStats, SstSummary};

/// The file has the last level's layout and codec.
const FLAG_AT_REST: u64 = 1;
/// The number of dense deletions follows.
const FLAG_DENSE: u64 = 2;
/// The external seqno follows.
const FLAG_EXTERNAL_SEQNO: u64 = 4;
/// The list of referenced blob files follows.
const FLAG_BLOBS: u64 = 8;
/// The location of the file and the length of its tail follow.
const FLAG_LOCATION: u64 = 16;

const FLAGS: u64 = FLAG_AT_REST | FLAG_DENSE | FLAG_EXTERNAL_SEQNO | FLAG_BLOBS | FLAG_LOCATION;

/// Location of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileLocation {
    /// In the data directory.
    #[default]
    Local,
    /// In an object store.
    ObjectStore,
}

/// The metadata of an SST in the manifest. Immutable: a file that moves to another level keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMeta {
    /// Id, never reused. The file name derives from it.
    pub file_id: u64,
    /// Stored bytes.
    pub size: u64,
    /// Checksum of the whole file, for copies and backups.
    pub checksum: u64,
    /// Smallest user key, inclusive.
    pub smallest: Vec<u8>,
    /// Largest user key, inclusive.
    pub largest: Vec<u8>,
    /// Smallest seqno of an entry.
    pub min_seqno: Seqno,
    /// Largest seqno of an entry.
    pub max_seqno: Seqno,
    /// Entries, deletions included.
    pub entries: u64,
    /// Deletions.
    pub deletes: u64,
    /// Deletions in blocks that hold little else: a scan skips them without finding rows.
    pub dense_deletes: u64,
    /// Entries that have a newer version of the same user key in this file. They are kept for a
    /// snapshot and become garbage once it is gone.
    pub superseded: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Written with the last level's layout and codec.
    pub at_rest: bool,
    /// The seqno of all entries, which overrides the stored ones: the file was written before the
    /// commit that made it visible. Then `min_seqno` and `max_seqno` equal it, and each user key
    /// has one version.
    pub external_seqno: Option<Seqno>,
    /// Statistics by index, ascending by index.
    pub per_index: Vec<IndexStats>,
    /// The blobs that its entries refer to, ascending by blob file.
    pub blobs: Vec<BlobUse>,
    /// Location of the file.
    pub location: FileLocation,
    /// Bytes behind the data blocks: index, filters, properties, footer. With them one read opens
    /// the file. 0 if the file was written before the manifest recorded this.
    pub tail_len: u64,
}

impl FileMeta {
    /// The metadata of a file just written.
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

    /// The metadata of the same file, made visible by the commit at `seqno`.
    pub fn with_external_seqno(self, seqno: Seqno) -> Self {
        Self {
            min_seqno: seqno,
            max_seqno: seqno,
            external_seqno: Some(seqno),
            ..self
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
                "SST {} lies in an object store, and only files of the data directory can be read",
                self.file_id
            ))),
        }
    }

    /// Whether `moved` is this file, perhaps at another level.
    pub fn is_same_file(&self, moved: &Self) -> bool {
        let back = Self {
            location: self.location,
            tail_len: self.tail_len,
            ..moved.clone()
        };
        *self == back
    }

    /// The closed range of user keys.
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

    /// Bytes of blobs that its entries refer to.
    pub fn blob_bytes(&self) -> u64 {
        let all = self.blobs.iter().map(|blobs| blobs.bytes);
        all.fold(0, u64::saturating_add)
    }

    /// Statistics of one index in this file.
    pub fn index(&self, index: IndexId) -> Option<&IndexStats> {
        let at = self.per_index.binary_search_by_key(&index, |s| s.index);
        at.ok().map(|i| &self.per_index[i])
    }

    /// Appends the encoding described in `docs/formats/manifest.md`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
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

    /// Takes an encoding from the front of `input`; `Ok(None)` if it is malformed.
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

    /// The file, its flags, and the number of its location.
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
