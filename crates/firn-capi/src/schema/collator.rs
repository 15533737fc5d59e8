//! Collation weights from the server.

use super::firn_collation;
use firn::keycode::{Collation, Collator, KeyCodec, KeyPart, PartKind, PartSource};
use std::ffi::c_void;
use std::sync::Arc;

/// Callbacks that compute collation weights; called from any thread.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct firn_collator {
    /// Writes the weights of the text on a level to `weights`, big-endian, without padding.
    /// `filled` says that the text is the value of a CHAR column, with spaces up to the length of
    /// the column. Sets `weighed` to the number of bytes of the text that these weights stand for;
    /// it is less than `len` if the byte after them begins no character. Returns the number of
    /// bytes written. A number above `capacity` means that nothing was written and a call with that
    /// capacity must follow.
    pub sort_key: unsafe extern "C" fn(
        handle: *const c_void,
        level: u32,
        filled: bool,
        text: *const u8,
        len: usize,
        weights: *mut u8,
        capacity: usize,
        weighed: *mut usize,
    ) -> usize,
    /// Number of bytes of the first `chars` characters of the text, or of all characters if it has
    /// fewer.
    pub prefix_len: unsafe extern "C" fn(
        handle: *const c_void,
        text: *const u8,
        len: usize,
        chars: usize,
    ) -> usize,
    /// Number of characters of the text.
    pub chars: unsafe extern "C" fn(handle: *const c_void, text: *const u8, len: usize) -> usize,
}

/// A collation of the server.
#[derive(Debug)]
pub(super) struct HostCollator {
    functions: firn_collator,
    handle: *const c_void,
}

// SAFETY: the host promises that the callbacks of a `firn_collator` may be used from any thread.
unsafe impl Send for HostCollator {}
// SAFETY: the same promise allows calls from several threads at once.
unsafe impl Sync for HostCollator {}

impl HostCollator {
    pub(super) fn new(functions: firn_collator, handle: *const c_void) -> Self {
        Self { functions, handle }
    }

    fn weigh(&self, level: u32, filled: bool, text: &[u8], weights: &mut Vec<u8>) -> usize {
        let mut capacity = 4 * text.len() + 16;
        loop {
            weights.reserve(capacity);
            let room = weights.spare_capacity_mut();
            capacity = room.len();
            let mut weighed = 0;
            // SAFETY: the callback reads `text` and writes at most `capacity` bytes.
            let written = unsafe {
                (self.functions.sort_key)(
                    self.handle,
                    level,
                    filled,
                    text.as_ptr(),
                    text.len(),
                    room.as_mut_ptr().cast(),
                    capacity,
                    &raw mut weighed,
                )
            };
            if written <= capacity {
                // SAFETY: the callback has initialized the first `written` bytes of the spare
                // capacity.
                unsafe { weights.set_len(weights.len() + written) };
                return weighed.min(text.len());
            }
            capacity = written;
        }
    }
}

impl Collator for HostCollator {
    fn sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        self.weigh(level, false, text, weights)
    }

    fn filled_sort_key(&self, level: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        self.weigh(level, true, text, weights)
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        // SAFETY: the callback reads `text`.
        let len =
            unsafe { (self.functions.prefix_len)(self.handle, text.as_ptr(), text.len(), chars) };
        len.min(text.len())
    }

    fn chars(&self, text: &[u8]) -> usize {
        // SAFETY: the callback reads `text`.
        unsafe { (self.functions.chars)(self.handle, text.as_ptr(), text.len()) }
    }
}

/// Writes the key of one string to `out`, as an index on a VARCHAR column would have it, or, if
/// `chars` is not zero, as an index on a CHAR column of so many characters. Returns the length of
/// the key. If that is above `capacity`, nothing is written. Returns 0 if `collation` is not a
/// valid description of a collation. Only tests of the callbacks need this function.
///
/// # Safety
/// All pointers must be valid; `text` must have `len` bytes, and `out` must have room for
/// `capacity`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_text_key(
    collation: *const firn_collation,
    collator: *const firn_collator,
    text: *const u8,
    len: usize,
    chars: u32,
    out: *mut u8,
    capacity: usize,
) -> usize {
    let key = std::panic::catch_unwind(|| {
        // SAFETY: the caller promises that the collation and the collator are valid.
        let schema = unsafe { super::collation(collation, collator) }.ok()?;
        // SAFETY: the caller promises that `text` has `len` bytes, and that nobody changes them
        // during the call.
        let text = unsafe { super::list(text, len as u32) };
        key(
            Collation::new(schema.spec, schema.collator?).ok()?,
            text,
            chars,
        )
    });
    let Ok(Some(key)) = key else { return 0 };
    if key.len() <= capacity {
        // SAFETY: the caller promises that `out` has room for `capacity` bytes.
        unsafe { std::ptr::copy_nonoverlapping(key.as_ptr(), out, key.len()) };
    }
    key.len()
}

fn key(collation: Collation, text: &[u8], chars: u32) -> Option<Vec<u8>> {
    const LEN_BYTES: usize = 2;
    let (source, record) = if chars == 0 {
        let mut record = (text.len() as u16).to_le_bytes().to_vec();
        record.extend_from_slice(text);
        (PartSource::VarChar { len_bytes: 2 }, record)
    } else {
        (PartSource::Char { chars }, text.to_vec())
    };
    let len = match source {
        PartSource::VarChar { .. } => record.len() - LEN_BYTES,
        _ => record.len(),
    };
    let part = KeyPart {
        column: 0,
        kind: PartKind::Text(Arc::new(collation)),
        source,
        offset: 0,
        len: len as u32,
        null: None,
        desc: false,
        prefix: None,
        image_len: len as u32,
    };
    let codec = KeyCodec::new(record.len() as u32, vec![part]).ok()?;
    let mut out = Vec::new();
    // SAFETY: the record has the length that the codec was made with, and no blobs.
    unsafe { codec.encode_record(&record, &mut out) }.ok()?;
    Some(out)
}
