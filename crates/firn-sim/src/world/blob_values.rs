//! Out-of-line values, written in the way tables write them: the tail of a long value becomes a
//! blob, the head stays in the entry. Reads join both for the comparison with the model.

use super::{StepEnd, World};
use crate::ensure;
use firn::base::blob_buf::BlobBuf;
use firn::base::blob_ref;
use firn::base::value::OwnedValue;
use firn::base::{Kind, Result, Value};
use firn::blob::BlobStore;
use firn::env::ReadClass;
use firn::txn::Transaction;
use std::sync::atomic::Ordering;

/// The column id of all blobs.
const COLUMN: u32 = 7;

/// A stored entry. For [`Kind::PutBlobs`], the value's tail ends with blob references.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    kind: Kind,
    value: OwnedValue,
}

impl Stored {
    pub(super) fn of(kind: Kind, value: Value<'_>) -> Self {
        let value = value.to_owned();
        Self { kind, value }
    }

    /// The whole value, with the blob read.
    pub(super) fn read(&self, blobs: &BlobStore) -> Result<OwnedValue> {
        if self.kind != Kind::PutBlobs {
            return Ok(self.value.clone());
        }
        let value = self.value.as_value();
        let (proper, refs) = blob_ref::split(value.tail)?;
        let mut whole = [value.head, proper].concat();
        let mut buf = BlobBuf::new();
        for blob in &refs {
            whole.extend_from_slice(blobs.read(blob, ReadClass::Blob, &mut buf)?);
        }
        Ok(OwnedValue::new(whole.into(), value.head.len()))
    }
}

/// Puts `value`; a tail of at least the blob threshold goes out of line.
pub(super) fn put(txn: &mut Transaction, key: &[u8], value: Value<'_>) -> Result<()> {
    let threshold = txn.context().mutable.blob_threshold.load(Ordering::Relaxed);
    if (value.tail.len() as u64) < threshold {
        return txn.put(key, value);
    }
    let blob = txn.write_blob(COLUMN, value.tail)?;
    let mut tail = Vec::new();
    blob_ref::append(&mut tail, &[blob]);
    txn.put_with_blobs(key, Value::split(value.head, &tail))
}

impl World {
    /// Puts a new head for `key`, which the session has locked, and keeps the blob of the latest
    /// version. Returns the new value; `None`, and no change, if that version has no blob.
    pub(super) fn keep_blob(
        &mut self,
        at: usize,
        key: &[u8],
    ) -> Result<Option<OwnedValue>, StepEnd> {
        let txn = &mut self.sessions[at].txn;
        let point = txn.latest_point();
        let found = txn.get(&point, key, ReadClass::Point, |internal, value| {
            Stored::of(internal.kind, value)
        })?;
        let Some(old) = found.filter(|old| old.kind == Kind::PutBlobs) else {
            return Ok(None);
        };
        let before = old.read(&point.super_version.blobs)?;
        let head = self.history.now().to_le_bytes();
        let stored = old.value.as_value();
        txn.put_with_blobs(key, Value::split(&head, stored.tail))?;
        let tail = before.as_value().tail;
        ensure!(!tail.is_empty(), "a blob without bytes");
        let whole = [&head[..], tail].concat();
        Ok(Some(OwnedValue::new(whole.into(), head.len())))
    }

    pub(super) fn collect_blobs(&mut self) -> Result<(), StepEnd> {
        self.db().collect_blobs()?;
        Ok(())
    }
}
