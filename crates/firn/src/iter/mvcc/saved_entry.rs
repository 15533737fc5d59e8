//! A copy of an entry that outlives the next move of its source.

use crate::base::{InternalKey, Kind, Seqno, Value};

/// A user key, and a copy of the newest visible version of it that was found so far. Its buffers
/// are reused for the next key.
#[derive(Default)]
pub(super) struct SavedEntry {
    user_key: Vec<u8>,
    version: Option<(Seqno, Kind)>,
    value: Vec<u8>,
    head_len: usize,
}

impl SavedEntry {
    /// Starts with a user key and no version.
    pub(super) fn start(&mut self, user_key: &[u8]) {
        self.user_key.clear();
        self.user_key.extend_from_slice(user_key);
        self.version = None;
    }

    /// Copies a version of the user key over the one before.
    pub(super) fn set(&mut self, key: InternalKey<'_>, value: Value<'_>) {
        debug_assert_eq!(key.user_key, self.user_key);
        self.version = Some((key.seqno, key.kind));
        self.value.clear();
        self.value.extend_from_slice(value.head);
        self.value.extend_from_slice(value.tail);
        self.head_len = value.head.len();
    }

    pub(super) fn is_set(&self) -> bool {
        self.version.is_some()
    }

    pub(super) fn is_put(&self) -> bool {
        self.version.is_some_and(|(_, kind)| kind.is_put())
    }

    pub(super) fn user_key(&self) -> &[u8] {
        &self.user_key
    }

    pub(super) fn seqno(&self) -> Seqno {
        self.version.expect("set").0
    }

    pub(super) fn kind(&self) -> Kind {
        self.version.expect("set").1
    }

    pub(super) fn value(&self) -> Value<'_> {
        let (head, tail) = self.value.split_at(self.head_len);
        Value { head, tail }
    }
}
