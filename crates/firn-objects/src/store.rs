//! The store: objects by name, written whole.
//!
//! An implementation makes each request once; [`crate::Retrying`] tries again. All calls block.

use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::ops::Range;

/// Objects above this size are uploaded in parts.
pub const WHOLE_BYTES_MAX: u64 = 32 << 20;
/// The size of parts but the last. S3 wants at least 5 MiB and at most 10,000 parts, which makes
/// 156 GiB.
pub const PART_BYTES: u64 = 16 << 20;
/// The longest name of an object: a directory has it as the name of one file for a while.
const NAME_LEN_MAX: usize = 200;

/// The outcome of [`ObjectStore::put_new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutNew {
    /// The object holds the bytes of this call.
    Created,
    /// An object of this name existed, and is unchanged.
    Exists,
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name, without the prefix of the store.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was stored, by the clock of the store; seconds since 1970.
    pub modified_s: u64,
}

/// One answer to a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The items of the page, at most about a thousand.
    pub items: Vec<T>,
    /// Asks for the next page; none after the last.
    pub next: Option<String>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            next: None,
        }
    }
}

/// An upload in parts that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// The name of the object to be.
    pub name: String,
    /// Which upload of this name.
    pub id: UploadId,
    /// When it began, by the clock of the store; seconds since 1970.
    pub started_s: u64,
}

/// Identifies an upload in parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UploadId(pub String);

/// The answer of the store to a part; completing the upload needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTag(pub String);

/// Objects by name.
///
/// Names are path-like ([`check_name`]). What a put stores is there whole or not at all, and
/// durable when the put returns. A store that can checks the SHA-256 of what arrives.
pub trait ObjectStore: Send + Sync {
    /// Stores an object, in place of one that has the name.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn put(&self, name: &str, bytes: Bytes) -> Result<()>;

    /// Stores an object if there is none of the name; of several callers one wins. After an error
    /// of kind `Unreachable` it may exist all the same.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew>;

    /// A whole object.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn get(&self, name: &str) -> Result<Bytes>;

    /// Exactly these bytes of an object.
    ///
    /// # Errors
    /// See [`ErrorKind`]; `Damaged` if the object ends before them.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes>;

    /// Several ranges of an object, at once where the store can.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let each = ranges
            .iter()
            .map(|range| self.get_range(name, range.clone()));
        each.collect()
    }

    /// Size and time of an object.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn head(&self, name: &str) -> Result<ObjectInfo>;

    /// A page of the objects whose names begin with `prefix`; `token` is [`Page::next`] of the page
    /// before. A list may be stale: without the newest objects, and with some that are deleted.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>>;

    /// Deletes an object. It is no error if there is none.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn delete(&self, name: &str) -> Result<()>;

    /// Begins an upload in parts. Nothing is visible before [`Self::complete_upload`].
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn begin_upload(&self, name: &str) -> Result<UploadId>;

    /// Sends the part `index`, which begins at 0, once or again. All parts but the last have
    /// [`PART_BYTES`].
    ///
    /// # Errors
    /// See [`ErrorKind`]; `Absent` if there is no such upload.
    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag>;

    /// Makes the object of the parts, in place of one that has the name.
    ///
    /// # Errors
    /// See [`ErrorKind`]; `Absent` if there is no such upload, as after a completion whose answer
    /// was lost.
    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()>;

    /// Throws the parts away. It is no error if there is no such upload.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()>;

    /// A page of the uploads in parts that have not ended, of names that begin with `prefix`.
    ///
    /// # Errors
    /// See [`ErrorKind`].
    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>>;

    /// Nobody waits for answers any more: requests under way, and those to come, fail soon where
    /// that is possible.
    fn close(&self) {}
}

/// Calls `each` for all pages of a list.
///
/// # Errors
/// Of `page`.
pub fn for_each_page<T>(
    page: impl Fn(Option<&str>) -> Result<Page<T>>,
    mut each: impl FnMut(T),
) -> Result<()> {
    let mut token = None;
    loop {
        let answer = page(token.as_deref())?;
        answer.items.into_iter().for_each(&mut each);
        match answer.next {
            // A store that answers with the same token again would keep the caller for ever.
            Some(next) if Some(&next) == token.as_ref() => {
                let text = "the store's list does not go on after a page";
                return Err(Error::new(ErrorKind::Unreachable, text));
            }
            Some(next) => token = Some(next),
            None => return Ok(()),
        }
    }
}

/// Refuses names that a store or a directory could take for something else. A name is one or more
/// parts of `A-Z a-z 0-9 . _ -`, with `/` between them; no part begins with a dot.
///
/// # Errors
/// `Invalid`.
pub fn check_name(name: &str) -> Result<()> {
    let good = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty()
            && !part.starts_with('.')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if name.len() <= NAME_LEN_MAX && name.split('/').all(good) {
        return Ok(());
    }
    let text = format!("{name:?} is no name of an object");
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Checks that a store has sent all bytes of a range.
pub(crate) fn check_len(name: &str, range: &Range<u64>, bytes: Bytes) -> Result<Bytes> {
    let Some(len) = range.end.checked_sub(range.start) else {
        let text = format!("{name}: the range {range:?} ends before it begins");
        return Err(Error::new(ErrorKind::Invalid, text));
    };
    if bytes.len() as u64 == len {
        return Ok(bytes);
    }
    let text = format!(
        "{name}: the store sent {} bytes of the {len} at {}",
        bytes.len(),
        range.start
    );
    Err(Error::new(ErrorKind::Damaged, text))
}

#[cfg(test)]
mod tests;
