//! A node of the list: links, key and value in one piece of the arena.
//!
//! ```text
//!              node
//!               v
//! oldest | next[h-1] … next[1] next[0] | prefix, trailer, prev, lengths | key | head | tail
//! ```
//!
//! The tower of links lies in front of the node and has exactly `h` links, the height of the node.
//! So link `i` is found without knowing `h`, and link 0 shares a cache line with the fields that a
//! search compares. Only a node that has an older version of its user key behind it has the word
//! `oldest`.

use super::arena::{ALIGN, Arena};
use super::atomics::{AtomicPtr, Witness};
use crate::base::{InternalKey, Kind, Value, key};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::{NonNull, addr_of, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most links of a tower.
pub(super) const HEIGHT_MAX: usize = 12;

/// The search target: a user key and a trailer (`seqno << 8 | kind`). Larger trailers sort first.
pub(super) struct Probe<'a> {
    prefix: [u64; 2],
    user_key: &'a [u8],
    trailer: u64,
}

impl<'a> Probe<'a> {
    #[inline]
    pub(super) fn new(user_key: &'a [u8], trailer: u64) -> Self {
        Self {
            prefix: prefix_words(user_key),
            user_key,
            trailer,
        }
    }
}

/// The first 16 bytes of a key (its index id and twelve more), padded with zeros, as big-endian
/// words. If the words of two keys differ, they order the keys. (If the padding of one key meets a
/// nonzero byte of the other, the shorter key is a prefix of the longer one, so it is smaller.)
#[inline]
fn prefix_words(key: &[u8]) -> [u64; 2] {
    let bytes = match key.first_chunk::<16>() {
        Some(bytes) => *bytes,
        None => {
            let mut bytes = [0u8; 16];
            bytes[..key.len()].copy_from_slice(key);
            bytes
        }
    };
    let words = u128::from_be_bytes(bytes);
    [(words >> 64) as u64, words as u64]
}

#[repr(C)]
struct Node {
    /// Link 0; the other links lie in front of it.
    next: AtomicPtr<Node>,
    prefix: [u64; 2],
    trailer: u64,
    /// A hint for moves backward: a node somewhere before this one in the list, usually the one
    /// directly before.
    prev: AtomicPtr<Node>,
    witness: Witness,
    key_len: u32,
    head_len: u32,
    tail_len: u32,
    height: u16,
    /// Whether the word in front of the tower is there: the address of the oldest version of the
    /// same user key that was known when the node was made.
    has_oldest: bool,
}

/// Offset of the bytes of key and value in a node. It is a multiple of eight, so a key begins at a
/// whole word.
const BYTES: usize = size_of::<Node>();

/// Cache lines of the next node that a walk in order prefetches: enough for a row of 200 bytes with
/// its key.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const PREFETCHED_LINES: usize = 4;

/// A reference to a linked node, or to one about to be linked, in an arena that lives for `'a`.
///
/// Only this file dereferences nodes by raw pointers. Its safety rests on these invariants:
///
/// - A `NodeRef` points to a node that [`NodeRef::new`] initialized. The node's plain fields never
///   change afterwards, and the arena, which lives for `'a`, keeps it in place.
/// - Nodes are found through links, which are stored with Release and loaded with Acquire, so a
///   reader sees the fields. A node found through the word `oldest` of another node was found
///   through links by the thread that made that node, before it linked that node, so a reader sees
///   its fields, too.
/// - A node is reached at a level only through a link of that level, so its tower includes the
///   level.
/// - No Rust reference to a whole node is ever made, since the tower is not part of the type.
pub(super) struct NodeRef<'a> {
    node: NonNull<Node>,
    arena: PhantomData<&'a Arena>,
}

impl Clone for NodeRef<'_> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for NodeRef<'_> {}

impl PartialEq for NodeRef<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

// SAFETY: the fields of a node are immutable after `NodeRef::new` or atomic, and the arena, which
// is `Sync`, keeps the node for `'a`. So any thread may read through the reference.
unsafe impl Send for NodeRef<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for NodeRef<'_> {}

impl<'a> NodeRef<'a> {
    /// Creates a node with `height` links, not linked yet. `oldest` is a linked node of the same
    /// user key that comes behind it, if one is known. Also returns the size in the arena, bytes.
    pub(super) fn new(
        arena: &'a Arena,
        height: usize,
        oldest: Option<Self>,
        key: InternalKey<'_>,
        value: Value<'_>,
    ) -> (Self, usize) {
        assert!((1..=HEIGHT_MAX).contains(&height));
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a part is below 4 GiB");
        let words = height - 1 + usize::from(oldest.is_some());
        let tower = words * size_of::<AtomicPtr<Node>>();
        let parts = [key.user_key, value.head, value.tail];
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let size = (tower + BYTES + bytes).next_multiple_of(ALIGN);
        let piece = arena.alloc(size);
        // SAFETY: `piece` has `size` bytes, aligned to `ALIGN`, which is a node's alignment, and no
        // other thread knows it. The tower's length is a multiple of that alignment. Tower, fields
        // and bytes lie inside the piece, one after the other, and do not overlap the sources.
        let node = unsafe {
            let node = piece.add(tower).cast::<Node>();
            for level in 1..height {
                let link = node.cast::<AtomicPtr<Node>>().sub(level);
                link.write(AtomicPtr::new(null_mut()));
            }
            if let Some(oldest) = oldest {
                let word = node.cast::<*mut Node>().sub(height);
                word.write(oldest.node.as_ptr());
            }
            node.write(Node {
                next: AtomicPtr::new(null_mut()),
                prefix: prefix_words(key.user_key),
                trailer: key.trailer(),
                prev: AtomicPtr::new(null_mut()),
                witness: Witness::default(),
                key_len: len(key.user_key),
                head_len: len(value.head),
                tail_len: len(value.tail),
                height: height as u16,
                has_oldest: oldest.is_some(),
            });
            let mut to = node.cast::<u8>().add(BYTES);
            for part in parts {
                to.copy_from_nonoverlapping(NonNull::from(part).cast(), part.len());
                to = to.add(part.len());
            }
            node
        };
        let node = Self {
            node,
            arena: PhantomData,
        };
        node.witness().written();
        (node, size)
    }

    /// The same reference without the lifetime of the arena.
    ///
    /// # Safety
    /// The result must not be used after the arena is dropped.
    pub(super) unsafe fn detached(self) -> NodeRef<'static> {
        NodeRef {
            node: self.node,
            arena: PhantomData,
        }
    }

    fn from_ptr(node: *mut Node) -> Option<Self> {
        Some(Self {
            node: NonNull::new(node)?,
            arena: PhantomData,
        })
    }

    fn to_ptr(this: Option<Self>) -> *mut Node {
        this.map_or(null_mut(), |this| this.node.as_ptr())
    }

    #[inline]
    fn link(self, level: usize) -> &'a AtomicPtr<Node> {
        debug_assert!(level < self.height());
        // SAFETY: callers keep `level` below the height: they made the node with that height, or
        // reached it through a link of this level. So the link lies in the tower in front of the
        // node, where `NodeRef::new` initialized it, and the arena keeps it for `'a`.
        unsafe {
            &*self
                .node
                .as_ptr()
                .cast_const()
                .cast::<AtomicPtr<Node>>()
                .sub(level)
        }
    }

    #[inline]
    fn witness(self) -> &'a Witness {
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`; `addr_of!` makes no
        // reference to the whole node.
        unsafe { &*addr_of!((*self.node.as_ptr()).witness) }
    }

    #[inline]
    fn prev_hint(self) -> &'a AtomicPtr<Node> {
        // SAFETY: as for `witness`; the field is atomic, so a shared reference allows the stores.
        unsafe { &*addr_of!((*self.node.as_ptr()).prev) }
    }

    pub(super) fn height(self) -> usize {
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and `height` never
        // changes.
        unsafe { (*self.node.as_ptr()).height as usize }
    }

    /// The oldest version of this node's user key that was known when the node was made; the node
    /// itself if there was none. All nodes in between have the same user key.
    #[inline]
    pub(super) fn oldest(self) -> Self {
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and `has_oldest` never
        // changes.
        if !unsafe { (*self.node.as_ptr()).has_oldest } {
            return self;
        }
        self.witness().read();
        // SAFETY: the word in front of the tower is there, and `NodeRef::new` initialized it with
        // the address of a node in the same arena. It never changes.
        let oldest = unsafe { *self.node.as_ptr().cast::<*mut Node>().sub(self.height()) };
        Self::from_ptr(oldest).expect("the address of a node")
    }

    /// The next node at `level`, which must be below the height.
    #[inline]
    pub(super) fn next(self, level: usize) -> Option<Self> {
        Self::from_ptr(self.link(level).load(Acquire))
    }

    /// Prefetches the next node at `level`, which must be below the height.
    #[inline]
    pub(super) fn prefetch_next(self, level: usize) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let next = self.link(level).load(Relaxed);
            // SAFETY: a prefetch reads nothing, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(next.cast_const().cast()) };
        }
        let _ = level;
    }

    /// Prefetches what a scan needs once it leaves this entry: the next entry, or its first lines
    /// if it is large, and the link of the oldest version of this one.
    #[inline]
    pub(super) fn prefetch_following(self) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let next = self.link(0).load(Relaxed).cast_const().cast::<i8>();
            for line in 0..PREFETCHED_LINES {
                // SAFETY: a prefetch reads nothing, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line * 64)) };
            }
            let oldest = self.oldest().node.as_ptr().cast_const().cast::<i8>();
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(oldest) };
        }
    }

    /// Sets the link at `level` of this node, which no other thread can reach at this level yet.
    #[inline]
    pub(super) fn prepare_next(self, level: usize, next: Option<Self>) {
        self.link(level).store(Self::to_ptr(next), Relaxed);
    }

    /// Links `node` between this node and `after` at `level`. Returns `false` if `after` does not
    /// follow this node any more.
    #[inline]
    pub(super) fn try_link(self, level: usize, after: Option<Self>, node: Self) -> bool {
        self.link(level)
            .compare_exchange(
                Self::to_ptr(after),
                node.node.as_ptr(),
                Release,
                // Relaxed on failure: the value loaded then is not used, and the caller walks again
                // with Acquire loads.
                Relaxed,
            )
            .is_ok()
    }

    /// Stores `before`, which precedes this node, as the hint. The hint stays valid, since no node
    /// is removed.
    #[inline]
    pub(super) fn set_prev_hint(self, before: Self) {
        self.prev_hint().store(before.node.as_ptr(), Release);
    }

    /// The node before this linked node, possibly the head.
    #[inline]
    pub(super) fn prev(self) -> Self {
        let hint = Self::from_ptr(self.prev_hint().load(Acquire));
        let mut at = hint.expect("noted before the node was linked");
        loop {
            match at.next(0) {
                Some(next) if next != self => at = next,
                _ => return at,
            }
        }
    }

    /// Compares this entry with `probe`.
    #[inline]
    pub(super) fn compare(self, probe: &Probe<'_>) -> Ordering {
        self.witness().read();
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and these fields never
        // change.
        let (prefix, trailer) =
            unsafe { ((*self.node.as_ptr()).prefix, (*self.node.as_ptr()).trailer) };
        if prefix[0] != probe.prefix[0] {
            return prefix[0].cmp(&probe.prefix[0]);
        }
        if prefix[1] != probe.prefix[1] {
            return prefix[1].cmp(&probe.prefix[1]);
        }
        let keys = if self.key_len() <= 16 && probe.user_key.len() <= 16 {
            self.key_len().cmp(&probe.user_key.len())
        } else {
            self.user_key().cmp(probe.user_key)
        };
        keys.then_with(|| probe.trailer.cmp(&trailer))
    }

    /// Whether this entry has the user key of `probe`. If the prefixes differ, it reads no byte of
    /// the key, which may lie in another cache line.
    #[inline]
    pub(super) fn has_key_of(self, probe: &Probe<'_>) -> bool {
        self.witness().read();
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and `prefix` never
        // changes.
        let prefix = unsafe { (*self.node.as_ptr()).prefix };
        prefix == probe.prefix && self.user_key() == probe.user_key
    }

    /// Whether this entry has the user key and the trailer of `probe`.
    #[inline]
    pub(super) fn is(self, probe: &Probe<'_>) -> bool {
        self.witness().read();
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and `trailer` never
        // changes.
        let trailer = unsafe { (*self.node.as_ptr()).trailer };
        trailer == probe.trailer && self.user_key() == probe.user_key
    }

    #[inline]
    fn key_len(self) -> usize {
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and `key_len` never
        // changes.
        unsafe { (*self.node.as_ptr()).key_len as usize }
    }

    /// `len` bytes of the node, beginning `from` bytes after the start of the key.
    ///
    /// # Safety
    /// `from + len` must not exceed the length of key, head and tail together.
    #[inline]
    unsafe fn bytes(self, from: usize, len: usize) -> &'a [u8] {
        // SAFETY: this function requires the range to lie inside key and value, which
        // `NodeRef::new` wrote behind the fields. They never change, and the arena keeps them for
        // `'a`.
        unsafe {
            let start = self.node.as_ptr().cast_const().cast::<u8>().add(BYTES);
            std::slice::from_raw_parts(start.add(from), len)
        }
    }

    #[inline]
    pub(super) fn user_key(self) -> &'a [u8] {
        // SAFETY: the key comes first and has `key_len` bytes.
        unsafe { self.bytes(0, self.key_len()) }
    }

    #[inline]
    pub(super) fn key(self) -> InternalKey<'a> {
        self.witness().read();
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and `trailer` never
        // changes.
        let trailer = unsafe { (*self.node.as_ptr()).trailer };
        InternalKey {
            user_key: self.user_key(),
            seqno: trailer >> 8,
            kind: kind_of(trailer),
        }
    }

    #[inline]
    pub(super) fn value(self) -> Value<'a> {
        // SAFETY: `NodeRef::new` initialized the node, which lives for `'a`, and the lengths never
        // change.
        let (head_len, tail_len) = unsafe {
            (
                (*self.node.as_ptr()).head_len as usize,
                (*self.node.as_ptr()).tail_len as usize,
            )
        };
        let key_len = self.key_len();
        // SAFETY: head and tail follow the key with these lengths, so both ranges lie inside the
        // node.
        unsafe {
            Value {
                head: self.bytes(key_len, head_len),
                tail: self.bytes(key_len + head_len, tail_len),
            }
        }
    }
}

#[inline]
fn kind_of(trailer: u64) -> Kind {
    let (_, kind) = key::unpack_trailer(trailer).expect("packed from a kind");
    kind
}
