//! Hashes numbers that nobody can choose, such as addresses and ids of indexes.

use std::hash::Hasher;

/// Hashes one number with one multiplication. Maps with these keys change with every transaction,
/// so the hash must be fast; it need not resist chosen keys.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl NumberHasher {
    fn note(&mut self, number: u64) {
        // A map uses the lowest and the highest bits of a hash, and only the high bits of the
        // product depend on all bits of the number. So fold the high bits into the low ones.
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

impl Hasher for NumberHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_usize(&mut self, number: usize) {
        self.note(number as u64);
    }

    fn write_u32(&mut self, number: u32) {
        self.note(number.into());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
