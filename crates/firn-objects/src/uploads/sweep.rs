//! Sweeps strays: objects that nothing names, and uploads in parts that nobody ends.
//!
//! A killed server leaves them. They must be a day old by the clock of the store: a server whose
//! clock is wrong by less sweeps nothing too early. The list may be stale and show an old time for
//! an object that has been stored again since, so the object is asked before it is deleted.

use super::{Shared, Uploads};
use crate::error::{ErrorKind, Result};
use crate::store::{ObjectInfo, ObjectStore, UploadInfo, for_each_page};

/// How old strays must be, seconds.
pub const STRAY_S: u64 = 24 * 3600;

/// How long a name that was swept is not uploaded, seconds: a deletion whose answer was lost may
/// be executed late.
const SWEPT_S: u64 = 3600;

/// The result of [`Uploads::sweep`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The objects that were deleted.
    pub objects: Vec<String>,
    /// Uploads in parts that were aborted.
    pub uploads: u64,
}

/// Keeps an upload of the name from beginning.
pub(super) struct SweepGuard<'a> {
    shared: &'a Shared,
    name: &'a str,
}

impl Drop for SweepGuard<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().guarded.remove(self.name);
        self.shared.changed.notify_all();
    }
}

impl Uploads {
    /// Deletes the strays whose names begin with `prefix`, below which all objects are those of one
    /// database. `is_named` tells whether that names an object. It is called for held names, too,
    /// and without a lock; and once more right before each deletion.
    ///
    /// A server that another one has replaced does not know what that one names. So where servers
    /// share a store, `is_named` says yes once this one is fenced, and looks at the fence itself.
    ///
    /// # Errors
    /// Of the store. What was deleted before is gone; the next sweep does the rest.
    pub fn sweep(&self, prefix: &str, is_named: &dyn Fn(&str) -> bool) -> Result<Swept> {
        let shared = &*self.0;
        let mut swept = Swept::default();
        let now_s = shared.clock.unix_s();
        let mut state = shared.state.lock();
        state.swept.retain(|_, until_s| now_s < *until_s);
        drop(state);
        let is_old = |s: u64| shared.clock.unix_s() >= s + STRAY_S;
        let mut strays: Vec<ObjectInfo> = Vec::new();
        let list = |token: Option<&str>| shared.store.list_page(prefix, token);
        for_each_page(list, |object: ObjectInfo| {
            if is_old(object.modified_s) && !is_named(&object.name) {
                strays.push(object);
            }
        })?;
        for ObjectInfo { name, .. } in strays {
            let Some(_guard) = shared.guard(&name) else {
                continue;
            };
            // Nothing has begun to upload it, and nothing will. What was uploaded and released in
            // the meantime has a name now, or is young.
            let found = match shared.store.head(&name) {
                Err(error) if error.kind() == ErrorKind::Absent => continue,
                found => found?,
            };
            if !is_named(&name) && is_old(found.modified_s) {
                // Whatever is answered, a request may be executed again, later.
                let until_s = shared.clock.unix_s() + SWEPT_S;
                shared.state.lock().swept.insert(name.clone(), until_s);
                shared.store.delete(&name)?;
                swept.objects.push(name.clone());
            }
        }
        let mut left: Vec<UploadInfo> = Vec::new();
        let list = |token: Option<&str>| shared.store.list_uploads_page(prefix, token);
        for_each_page(list, |upload: UploadInfo| left.push(upload))?;
        for upload in left {
            let is_ours = shared.state.lock().begun.contains(&upload.id);
            if !is_ours && is_old(upload.started_s) {
                shared.store.abort_upload(&upload.name, &upload.id)?;
                swept.uploads += 1;
            }
        }
        Ok(swept)
    }
}

impl Shared {
    pub(super) fn guard<'a>(&'a self, name: &'a str) -> Option<SweepGuard<'a>> {
        let mut state = self.state.lock();
        if state.held.contains(name) || !state.guarded.insert(name.to_owned()) {
            return None;
        }
        Some(SweepGuard { shared: self, name })
    }
}
