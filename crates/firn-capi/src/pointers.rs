//! Conversions of pointers that cross the C ABI.

use crate::error::CallOutcome;
use firn::base::Error;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Moves a value to the heap and passes its ownership to the caller.
pub(crate) fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes the ownership of a value back; `None` for NULL.
///
/// # Safety
/// `pointer` must be NULL or from [`boxed`], and must not be used afterwards.
pub(crate) unsafe fn unbox<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller promises that the pointer is NULL or from `boxed`, and that this is its
    // last use.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// The bytes at `pointer`; none for NULL.
///
/// # Safety
/// `pointer` must be NULL, or point to `len` bytes that nobody changes while the result is used.
pub(crate) unsafe fn borrow_bytes<'a>(pointer: *const u8, len: usize) -> &'a [u8] {
    if pointer.is_null() {
        return &[];
    }
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    unsafe { std::slice::from_raw_parts(pointer, len) }
}

/// The C string at `pointer`; `None` for NULL.
///
/// # Safety
/// `pointer` must be NULL, or point to a string that ends with a zero byte and stays valid as long
/// as the result.
pub(crate) unsafe fn c_str<'a>(pointer: *const c_char) -> Result<Option<&'a str>, CallOutcome> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the strings end with a NUL byte and stay valid during the call.
    let string = unsafe { CStr::from_ptr(pointer) };
    let string = string
        .to_str()
        .map_err(|_| Error::invalid("a name is not UTF-8"))?;
    Ok(Some(string))
}

/// The path at `pointer`, which may have any bytes but zero; `None` for NULL.
///
/// # Safety
/// The requirements are those of [`c_str`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Option<&'a Path> {
    // SAFETY: the strings end with a NUL byte and stay valid during the call.
    let string = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })?;
    Some(Path::new(OsStr::from_bytes(string.to_bytes())))
}

/// The C string at `pointer`. NULL is an error.
///
/// # Safety
/// The requirements are those of [`c_str`].
pub(crate) unsafe fn name<'a>(pointer: *const c_char) -> Result<&'a str, CallOutcome> {
    // SAFETY: the caller promises what `c_str` requires: NULL, or a string with a zero byte at its
    // end.
    unsafe { c_str(pointer) }?.ok_or_else(|| Error::invalid("a name is missing").into())
}
