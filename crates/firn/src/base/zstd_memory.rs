//! The memory that ZSTD takes from the C library, which the engine's allocator does not know.

use std::sync::atomic::{AtomicU64, Ordering};
use zstd::zstd_safe::{CCtx, DCtx, DDict};

static BYTES: AtomicU64 = AtomicU64::new(0);

/// Memory of all [`ZstdObject`]s of the process, bytes.
pub fn zstd_bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// An object of ZSTD that knows its size.
pub trait SizedObject {
    /// Memory of the object, bytes.
    fn memory(&self) -> usize;
}

macro_rules! sized_object {
    ($type:ident) => {
        impl SizedObject for $type<'static> {
            fn memory(&self) -> usize {
                self.sizeof()
            }
        }
    };
}

sized_object!(CCtx);
sized_object!(DCtx);
sized_object!(DDict);

/// A context or dictionary of ZSTD, whose memory counts in [`zstd_bytes`].
pub struct ZstdObject<T: SizedObject> {
    object: T,
    counted: u64,
}

impl<T: SizedObject> ZstdObject<T> {
    /// Counts the memory of `object`.
    pub fn new(object: T) -> Self {
        let mut counted = Self { object, counted: 0 };
        counted.count();
        counted
    }

    /// The object, for calls that do not change its size.
    pub fn get(&self) -> &T {
        &self.object
    }

    /// Calls `f` with the object, whose size may change: a context takes its tables at its first
    /// use.
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let result = f(&mut self.object);
        self.count();
        result
    }

    /// Writes to memory that threads share only if the size has changed.
    fn count(&mut self) {
        let now = self.object.memory() as u64;
        if now != self.counted {
            BYTES.fetch_add(now.wrapping_sub(self.counted), Ordering::Relaxed);
            self.counted = now;
        }
    }
}

impl<T: SizedObject> Drop for ZstdObject<T> {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests compress at the same time, so only large differences tell anything: the context
    /// takes 100 MiB and more for a window of 64 MiB.
    #[test]
    fn a_context_counts_what_it_takes_until_it_is_dropped() {
        const LARGE: u64 = 90 << 20;
        let before = zstd_bytes();
        let mut context = ZstdObject::new(CCtx::create());
        let mut out = vec![0; 1 << 10];
        context.with(|context| {
            use zstd::zstd_safe::CParameter::{CompressionLevel, WindowLog};
            context.set_parameter(CompressionLevel(19)).unwrap();
            context.set_parameter(WindowLog(26)).unwrap();
            context.set_pledged_src_size(None).unwrap();
            let mut output = zstd::zstd_safe::OutBuffer::around(&mut out[..]);
            let mut input = zstd::zstd_safe::InBuffer::around(b"text");
            context.compress_stream(&mut output, &mut input).unwrap();
        });
        let during = zstd_bytes();
        assert!(during > before + LARGE, "{before}, {during}");
        assert!(context.get().sizeof() as u64 > LARGE);
        drop(context);
        assert!(zstd_bytes() + LARGE < during);
    }
}
