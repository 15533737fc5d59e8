//! One index of an open table. It encodes keys and puts the index id in front of them.
//!
//! The *declared parts*, or *declared columns*, of a key are the key parts that the index
//! definition names. In a secondary index the key of the row follows them, so the keys of two
//! entries differ even if their declared parts are equal.

use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::{Error, IndexId, Result, Seqno};
use crate::catalog::{IndexEntry, IndexSchema};
use crate::keycode::{IndexCodec, IndexDecodePlan};

/// The source of an index's keys.
enum IndexKeys {
    /// Keys are encoded from columns of the row.
    Columns(Box<IndexCodec>),
    /// Keys are hidden row ids: the clustered index of a table without a primary key.
    Hidden,
}

/// One index of an open table.
pub(crate) struct IndexInfo {
    ids: IndexEntry,
    name: String,
    pub(super) unique: bool,
    keys: IndexKeys,
}

impl IndexInfo {
    /// Makes the index that `schema` defines; `ids` is its entry in the catalog.
    pub(super) fn new(schema: &IndexSchema, ids: IndexEntry, codec: IndexCodec) -> Self {
        Self {
            ids,
            name: schema.name.clone(),
            unique: schema.unique,
            keys: IndexKeys::Columns(Box::new(codec)),
        }
    }

    /// The clustered index of a table without a primary key.
    pub(super) fn hidden(ids: IndexEntry) -> Self {
        Self {
            ids,
            name: "(hidden)".to_owned(),
            unique: true,
            keys: IndexKeys::Hidden,
        }
    }

    pub(crate) fn id(&self) -> IndexId {
        self.ids.id
    }

    pub(super) fn created(&self) -> Seqno {
        self.ids.created
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn codec(&self) -> Result<&IndexCodec> {
        match &self.keys {
            IndexKeys::Columns(codec) => Ok(codec),
            IndexKeys::Hidden => Err(Error::invalid("a hidden key has no columns")),
        }
    }

    /// Appends the index id and the encoded declared parts of the row in `record`. Returns whether
    /// one of these parts is NULL.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    pub(super) unsafe fn declared_key(&self, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.extend_from_slice(&index_prefix(self.id()));
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { self.codec()?.encode_record(record, out) }
    }

    /// Appends the key of the row in `record` in this clustered index. A hidden key needs `row_id`.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    pub(super) unsafe fn row_key(
        &self,
        record: &[u8],
        row_id: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match (&self.keys, row_id) {
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            (IndexKeys::Columns(_), _) => unsafe { self.declared_key(record, out) }.map(|_| ()),
            (IndexKeys::Hidden, Some(id)) => {
                out.extend_from_slice(&index_prefix(self.id()));
                out.extend_from_slice(&id.to_be_bytes());
                Ok(())
            }
            (IndexKeys::Hidden, None) => {
                Err(Error::invalid("the row has a hidden key, which is missing"))
            }
        }
    }

    /// Appends the value of the row's entry in this secondary index.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    pub(super) unsafe fn entry_value(&self, record: &[u8], out: &mut Vec<u8>) -> Result<()> {
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { self.codec()?.encode_value(record, out) }
    }

    /// Appends the index id and the encoded form of a key image: some or all parts, or a row
    /// reference. Returns whether the image has all declared parts.
    pub(super) fn seek_prefix(&self, image: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.extend_from_slice(&index_prefix(self.id()));
        match &self.keys {
            IndexKeys::Columns(codec) => {
                let info = codec.encode_image(image, out)?;
                Ok(info.parts >= codec.declared().parts().len())
            }
            IndexKeys::Hidden if image.len() == size_of::<u64>() => {
                out.extend_from_slice(image);
                Ok(true)
            }
            IndexKeys::Hidden => Err(Error::invalid("a hidden key has eight bytes")),
        }
    }

    /// Length of the index id and the declared parts, with which an entry's key starts.
    pub(super) fn declared_len(&self, key: &[u8]) -> Result<usize> {
        let rest = key.get(INDEX_ID_LEN..).unwrap_or_default();
        Ok(INDEX_ID_LEN + self.codec()?.declared_len(rest)?)
    }

    /// Length of the part of an entry's key that is unique in the index: the index id and the
    /// declared parts. `None` if the index is not unique, or if a declared part is NULL.
    pub(super) fn unique_len(&self, key: &[u8]) -> Result<Option<usize>> {
        if !self.unique {
            return Ok(None);
        }
        let rest = key.get(INDEX_ID_LEN..).unwrap_or_default();
        match self.codec()?.has_null(rest)? {
            true => Ok(None),
            false => self.declared_len(key).map(Some),
        }
    }

    /// Whether a column's value can be decoded from entries of the index.
    pub(super) fn covers(&self, column: u32) -> bool {
        self.codec().is_ok_and(|codec| codec.covers(column))
    }

    /// Number of declared parts.
    pub(super) fn part_count(&self) -> usize {
        match &self.keys {
            IndexKeys::Columns(codec) => codec.declared().parts().len(),
            IndexKeys::Hidden => 1,
        }
    }

    /// Length of the index id and the first `parts` declared parts, with which an entry's key
    /// starts.
    pub(super) fn prefix_len(&self, key: &[u8], parts: usize) -> Result<usize> {
        let rest = key.get(INDEX_ID_LEN..).unwrap_or_default();
        Ok(INDEX_ID_LEN + self.codec()?.declared().skip(rest, parts)?)
    }

    /// A plan that decodes the wanted columns from entries alone.
    pub(super) fn plan(&self, wanted: Option<&[u8]>) -> Result<IndexDecodePlan> {
        Ok(self.codec()?.plan(wanted))
    }
}
