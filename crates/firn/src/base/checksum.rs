//! The checksum of all files: XXH3, 64 bits.

/// XXH3-64 of `bytes`.
pub fn xxh3(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// XXH3-64 of `bytes` plus a term that depends on their file and offset. So a block that was
/// written to or read from a wrong position fails the check. To copy a block to another position,
/// subtract the old [`place_term`] and add the new one; the bytes need not be hashed again.
pub fn placed(bytes: &[u8], file_id: u64, offset: u64) -> u64 {
    xxh3(bytes).wrapping_add(place_term(file_id, offset))
}

/// The additive term for a position.
pub fn place_term(file_id: u64, offset: u64) -> u64 {
    let mut seed = [0u8; 16];
    seed[..8].copy_from_slice(&file_id.to_le_bytes());
    seed[8..].copy_from_slice(&offset.to_le_bytes());
    xxh3(&seed)
}
