//! A stack of byte strings, for many entries in few allocations.

/// Bytes of the first chunk.
const CHUNK_BYTES_MIN: usize = 512;
/// Each chunk is as large as all before it, up to this number of bytes. An entry that is larger
/// gets a chunk of its own length.
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// [`ByteArena::clear`] keeps at most this many bytes.
const KEPT_BYTES: usize = 1024;

/// A stack of entries, of which only the newest can be removed. It allocates once for many entries,
/// and frees many together.
///
/// The spare room of a chunk is given back when the next chunk begins. So an arena wastes less than
/// [`CHUNK_BYTES_MAX`] bytes, and, if it holds more than [`CHUNK_BYTES_MIN`], no more than it
/// holds.
#[derive(Default)]
pub(super) struct ByteArena {
    /// No chunk is empty, unless it is the only one.
    chunks: Vec<Vec<u8>>,
}

/// The beginning of an entry in a [`ByteArena`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaAddress {
    chunk: u32,
    offset: u32,
}

impl ByteArena {
    /// Adds an entry, which consists of `parts` one after the other.
    pub(super) fn push(&mut self, parts: [&[u8]; 3]) -> ArenaAddress {
        let len = parts.iter().map(|part| part.len()).sum();
        let room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len();
        if self.chunks.last().is_none_or(|last| room(last) < len) {
            self.add_chunk(len);
        }
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        let address = ArenaAddress {
            chunk: at as u32,
            offset: chunk.len() as u32,
        };
        for part in parts {
            chunk.extend_from_slice(part);
        }
        address
    }

    #[cold]
    fn add_chunk(&mut self, len: usize) {
        let mut size = CHUNK_BYTES_MIN;
        match self.chunks.last_mut() {
            Some(last) if last.is_empty() => {
                self.chunks.pop();
            }
            Some(last) => {
                last.shrink_to_fit();
                // Later chunks only matter once the sum is beyond the maximum.
                let held = self.chunks.iter().take(CHUNK_BYTES_MAX / CHUNK_BYTES_MIN);
                let held: usize = held.map(Vec::len).sum();
                size = held.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            }
            None => {}
        }
        self.chunks.push(Vec::with_capacity(size.max(len)));
    }

    /// The `len` bytes from `at` on.
    pub(super) fn get(&self, at: ArenaAddress, len: usize) -> &[u8] {
        &self.chunks[at.chunk as usize][at.offset as usize..][..len]
    }

    /// Forgets the entry at `at` and all entries after it.
    pub(super) fn truncate(&mut self, at: ArenaAddress) {
        let keep = at.chunk as usize + usize::from(at.offset > 0 || at.chunk == 0);
        self.chunks.truncate(keep);
        if at.offset > 0 || at.chunk == 0 {
            self.chunks[at.chunk as usize].truncate(at.offset as usize);
        }
    }

    /// Forgets all entries. A small chunk stays for the next ones.
    pub(super) fn clear(&mut self) {
        self.chunks.truncate(1);
        self.chunks.shrink_to(4);
        if let Some(first) = self.chunks.first_mut() {
            first.clear();
            if first.capacity() > KEPT_BYTES {
                self.chunks.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    impl ByteArena {
        pub(in crate::txn::write_set) fn capacity(&self) -> usize {
            self.chunks.iter().map(Vec::capacity).sum()
        }
    }

    #[test]
    fn entries_stay_until_they_are_forgotten() {
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut arena = ByteArena::default();
            let mut model: Vec<(ArenaAddress, Vec<u8>)> = Vec::new();
            let longest = [3, 100, 5000, 3 * CHUNK_BYTES_MAX][seed as usize % 4];
            for step in 0..100 {
                match rng.random_range(0..20) {
                    0 if !model.is_empty() => {
                        let at = rng.random_range(0..model.len());
                        arena.truncate(model[at].0);
                        model.truncate(at);
                    }
                    1 if rng.random_bool(0.2) => {
                        arena.clear();
                        model.clear();
                        assert!(arena.capacity() <= KEPT_BYTES);
                    }
                    _ => {
                        let entry = vec![step as u8; rng.random_range(0..=longest)];
                        let (a, rest) = entry.split_at(rng.random_range(0..=entry.len()));
                        let (b, c) = rest.split_at(rng.random_range(0..=rest.len()));
                        model.push((arena.push([a, b, c]), entry));
                    }
                }
                for (at, entry) in &model {
                    assert_eq!(
                        arena.get(*at, entry.len()),
                        entry,
                        "seed {seed} step {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn forgotten_entries_give_their_memory_back() {
        let mut arena = ByteArena::default();
        let first = arena.push([&[1; 10], &[], &[]]);
        let rest = arena.push([&[2; 10], &[], &[]]);
        for _ in 0..1000 {
            arena.push([&[3; 1000], &[], &[]]);
        }
        assert!(arena.capacity() > 1_000_000);
        arena.truncate(rest);
        assert!(arena.capacity() <= CHUNK_BYTES_MIN);
        assert_eq!(arena.get(first, 10), [1; 10]);
        assert_eq!(arena.push([&[4; 10], &[], &[]]), rest);
    }

    #[test]
    fn little_room_is_wasted() {
        let mut arena = ByteArena::default();
        let (mut bytes, mut large) = (0, 0);
        for n in 0..2000 {
            // Large entries between small ones.
            let len = if n % 2 == 0 { 1 } else { 20_000 };
            arena.push([&vec![0; len], &[], &[]]);
            bytes += len;
            large = large.max(arena.capacity() - bytes);
            assert!(arena.capacity() <= 2 * bytes + CHUNK_BYTES_MIN, "{n}");
        }
        assert!(large <= CHUNK_BYTES_MAX, "{large}");
    }
}
