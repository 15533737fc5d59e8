//! The host's callback that hears of the progress of a long call, and may end the call.

use firn::base::{Error, ErrorKind};
use std::ffi::c_void;

/// Reports the progress of a long call: `done` of `total`, in any unit. If it returns true, the
/// call ends with an error.
pub type firn_progress = unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> bool;

/// Wraps the callback for the core. The closure fails with `Interrupted` and the text `interrupted`
/// if the callback returns true.
///
/// # Safety
/// The callback and its context must stay valid until the last call of the returned closure.
pub(crate) unsafe fn reporter(
    progress: firn_progress,
    context: *mut c_void,
    interrupted: &'static str,
) -> impl FnMut(u64, u64) -> Result<(), Error> {
    // SAFETY: the caller promises that callback and context stay valid.
    move |done, total| match unsafe { progress(context, done, total) } {
        true => Err(Error::new(ErrorKind::Interrupted, interrupted)),
        false => Ok(()),
    }
}
