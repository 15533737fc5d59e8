//! Iterators that are one of several types.

/// Implements [`InternalIterator`](crate::base::InternalIterator) for an enum whose variants each
/// hold an iterator. A call selects the variant by a `match`, which costs less than the function
/// table of a trait object.
macro_rules! iterator_of_variants {
    ($type:ident: $($variant:ident),+) => {
        impl $crate::base::InternalIterator for $type {
            fn seek_to_first(&mut self) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.seek_to_first(),)+ }
            }
            fn seek_to_last(&mut self) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.seek_to_last(),)+ }
            }
            fn seek(&mut self, user_key: &[u8], seqno: $crate::base::Seqno) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.seek(user_key, seqno),)+ }
            }
            fn seek_before(&mut self, user_key: &[u8]) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.seek_before(user_key),)+ }
            }
            #[inline]
            fn next(&mut self) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.next(),)+ }
            }
            #[inline]
            fn next_past_versions(&mut self) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.next_past_versions(),)+ }
            }
            fn prev(&mut self) -> $crate::base::Result<bool> {
                match self { $(Self::$variant(iter) => iter.prev(),)+ }
            }
            fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: $crate::base::Seqno) -> u32 {
                match self { $(Self::$variant(iter) => iter.rows_ahead(limit, snapshot),)+ }
            }
            #[inline]
            fn next_unchecked(&mut self) {
                match self { $(Self::$variant(iter) => iter.next_unchecked(),)+ }
            }
            fn skip_unchecked(&mut self, rows: u32) {
                match self { $(Self::$variant(iter) => iter.skip_unchecked(rows),)+ }
            }
            #[inline]
            fn next_without_key(&mut self) -> ($crate::base::Kind, $crate::base::Value<'_>) {
                match self { $(Self::$variant(iter) => iter.next_without_key(),)+ }
            }
            fn restore_key(&mut self) {
                match self { $(Self::$variant(iter) => iter.restore_key(),)+ }
            }
            fn peek(&self, count: usize, show: &mut dyn FnMut(&[u8])) {
                match self { $(Self::$variant(iter) => iter.peek(count, show),)+ }
            }
            fn prefetch_seek(&self, user_key: &[u8], begin: bool) -> bool {
                match self { $(Self::$variant(iter) => iter.prefetch_seek(user_key, begin),)+ }
            }
            fn valid(&self) -> bool {
                match self { $(Self::$variant(iter) => iter.valid(),)+ }
            }
            #[inline]
            fn key(&self) -> $crate::base::InternalKey<'_> {
                match self { $(Self::$variant(iter) => iter.key(),)+ }
            }
            #[inline]
            fn value(&self) -> $crate::base::Value<'_> {
                match self { $(Self::$variant(iter) => iter.value(),)+ }
            }
        }
    };
}

pub(crate) use iterator_of_variants;
