//! Encodes and decodes the parts of blob files; `docs/formats/blob.md` has the byte format.
//!
//! A file is a header, blobs from [`DATA_START`] on, and, if the file is the result of a rewrite, a
//! table of places with a footer. Each blob has a header of its own, so that a file whose table is
//! lost can still be scanned. A reference has the logical file and the offset in it. A rewrite
//! moves a blob and stores its old and new offset in the table of places, so references in rows
//! never change. The checksum of a blob also depends on its logical file and offset, so a read
//! notices if it finds another blob there.

use super::chunks;
use crate::base::blob_ref::{BLOB_HEADER_LEN, BlobCodec, chunk_table_len};
use crate::base::checksum::{place_term, placed, xxh3};
use crate::base::{Error, Result, encryption_envelope};

const MAGIC: &[u8; 8] = b"FIRNBLOB";
const BLOB_MAGIC: &[u8; 4] = b"BLB1";
const PLACES_MAGIC: &[u8; 8] = b"FIRNPLAC";
const VERSION: u32 = 1;

/// Length of the file header in bytes.
pub(super) const FILE_HEADER_LEN: usize = 40;

/// Offset of the first blob in a file.
pub const DATA_START: u64 = 64;

/// Length in bytes of the footer of a rewritten file.
pub(super) const FOOTER_LEN: usize = 32;

/// Length in bytes of one entry in the table of places.
pub(super) const PLACE_LEN: usize = 16;

/// Blobs of at least this many stored bytes begin at a block of the file system. So all whole
/// blocks of such a blob can be punched when it is garbage, and reading it touches no block that
/// also holds the blob before it. Smaller blobs are not aligned, because the gaps could take more
/// than an eighth of the file.
pub(super) const ALIGNED_FROM: u64 = 32 << 10;

/// Size in bytes of a file system block.
pub(super) const ALIGNMENT: u64 = 4 << 10;

/// The header of file `id`, which holds the blobs of the logical file `logical`.
pub(super) fn file_header(id: u64, logical: u64) -> [u8; FILE_HEADER_LEN] {
    let mut header = [0; FILE_HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&id.to_le_bytes());
    header[24..32].copy_from_slice(&logical.to_le_bytes());
    let sum = xxh3(&header[..32]);
    header[32..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Checks that `bytes` is the header of file `id` with logical id `logical`. Errors call the file
/// `name`.
pub(super) fn check_file_header(bytes: &[u8], id: u64, logical: u64, name: &str) -> Result<()> {
    let damaged = |what: &str| Err(Error::corruption(name, 0, what));
    if bytes.len() < FILE_HEADER_LEN || &bytes[..8] != MAGIC {
        return damaged("not a blob file");
    }
    if u64_at(bytes, 32) != xxh3(&bytes[..32]) {
        return damaged("checksum of the blob file's header");
    }
    let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    if version != VERSION {
        return Err(Error::unsupported(format_args!(
            "{name}: version {version} of blob files"
        )));
    }
    if (u64_at(bytes, 16), u64_at(bytes, 24)) != (id, logical) {
        return damaged("the header names another blob file");
    }
    Ok(())
}

/// The logical id in a file header, without any check.
pub(super) fn logical_id(header: &[u8; FILE_HEADER_LEN]) -> u64 {
    u64_at(header, 24)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The header of a blob: codec, length of the value, number of stored bytes, checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobHeader {
    pub(super) codec: BlobCodec,
    pub(super) encrypted: bool,
    pub(super) len: u64,
    pub(super) stored: u64,
    pub(super) checksum: u64,
}

impl BlobHeader {
    pub(super) fn encode(&self) -> [u8; BLOB_HEADER_LEN as usize] {
        let mut bytes = [0; BLOB_HEADER_LEN as usize];
        bytes[..4].copy_from_slice(BLOB_MAGIC);
        bytes[4] = self.codec as u8;
        bytes[5] = match self.encrypted {
            false => encryption_envelope::NONE,
            true => encryption_envelope::AES_256_GCM,
        };
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stored.to_le_bytes());
        bytes[24..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < BLOB_HEADER_LEN as usize || &bytes[..4] != BLOB_MAGIC {
            return None;
        }
        Some(Self {
            codec: BlobCodec::from_u8(bytes[4])?,
            encrypted: bytes[5] != encryption_envelope::NONE,
            len: u64_at(bytes, 8),
            stored: u64_at(bytes, 16),
            checksum: u64_at(bytes, 24),
        })
    }

    /// Whether `stored` is the complete and undamaged content of this blob, if it lies at `offset`
    /// of the logical file `file`.
    pub(super) fn fits(&self, stored: &[u8], file: u64, offset: u64) -> bool {
        let summed = summed(self.codec, self.len, stored);
        if summed.map(|summed| placed(summed, file, offset)) != Some(self.checksum) {
            return false;
        }
        if self.codec != BlobCodec::Chunks {
            return true;
        }
        let (table, body) = stored.split_at(chunk_table_len(self.len) as usize);
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        chunks::for_each(table, body, len, |_| true) == Ok(body.len())
    }
}

/// The part of a blob's stored bytes that the blob's checksum covers: all of them or, with chunks,
/// only the table. `None` if `stored` is shorter than that.
pub(super) fn summed(codec: BlobCodec, len: u64, stored: &[u8]) -> Option<&[u8]> {
    match codec {
        BlobCodec::None | BlobCodec::Zstd => Some(stored),
        BlobCodec::Chunks => stored.get(..usize::try_from(chunk_table_len(len)).ok()?),
    }
}

/// Offset of a span for a blob of `stored` bytes in a file whose first free offset is `end`.
pub(super) fn place_after(end: u64, stored: u64) -> u64 {
    match stored >= ALIGNED_FROM {
        true => end.next_multiple_of(ALIGNMENT),
        false => end,
    }
}

/// Encodes the table of places of a rewritten file with its footer, to be written at `offset` of
/// file `id`. `places` has pairs of the offset in the logical file and the offset in this file,
/// ascending.
pub(super) fn places(places: &[(u64, u64)], id: u64, offset: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(places.len() * PLACE_LEN + FOOTER_LEN);
    for (logical, here) in places {
        out.extend_from_slice(&logical.to_le_bytes());
        out.extend_from_slice(&here.to_le_bytes());
    }
    out.extend_from_slice(PLACES_MAGIC);
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&(places.len() as u64).to_le_bytes());
    let sum = xxh3(&out).wrapping_add(place_term(id, offset));
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Offset of the table of places, from the footer of a file of `size` bytes; `None` if the footer
/// is invalid.
pub(super) fn places_begin(footer: &[u8], size: u64) -> Option<u64> {
    if footer.len() != FOOTER_LEN || &footer[..8] != PLACES_MAGIC {
        return None;
    }
    let (offset, count) = (u64_at(footer, 8), u64_at(footer, 16));
    let len = count.checked_mul(PLACE_LEN as u64)?;
    let end = offset.checked_add(len)?.checked_add(FOOTER_LEN as u64)?;
    (end == size).then_some(offset)
}

/// Decodes the end of a rewritten blob file `id`, which was read from `offset` on: the table of
/// places, which maps the offset of each blob in the logical file to its offset here, and the
/// footer. `None` if they are damaged.
pub(super) fn take_places(bytes: &[u8], id: u64, offset: u64) -> Option<Vec<(u64, u64)>> {
    let (summed, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    if u64_at(sum, 0) != xxh3(summed).wrapping_add(place_term(id, offset)) {
        return None;
    }
    let table = &bytes[..bytes.len().checked_sub(FOOTER_LEN)?];
    let entries = table.chunks_exact(PLACE_LEN);
    Some(entries.map(|e| (u64_at(e, 0), u64_at(e, 8))).collect())
}

/// The header of a blob that a scan of a file has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScannedBlob {
    /// Offset of the blob's header.
    pub offset: u64,
    /// Length of the value in bytes.
    pub len: u64,
    /// Number of stored bytes.
    pub stored: u64,
    /// Codec of the stored bytes.
    pub codec: BlobCodec,
    /// Checksum in the header; the scan does not verify it.
    pub checksum: u64,
    /// The header says that the blob is encrypted, so this version cannot read the blob.
    pub encrypted: bool,
}

/// Finds the first blob header at or after `offset`; `None` if there is none up to the end of the
/// file. `read` returns the given number of bytes from an offset on, or fewer at the end of the
/// file. Bytes that are no blob header, such as holes and torn writes, are skipped.
///
/// # Errors
/// Those of `read`.
pub fn scan_blobs(
    mut offset: u64,
    read: &mut dyn FnMut(u64, usize) -> Result<Vec<u8>>,
) -> Result<Option<ScannedBlob>> {
    let mut block = Vec::new();
    let mut block_at = 0;
    loop {
        let skip = offset.wrapping_sub(block_at) as usize;
        if offset < block_at || skip + BLOB_HEADER_LEN as usize > block.len() {
            block = read(offset, 64 << 10)?;
            block_at = offset;
            if block.len() < BLOB_HEADER_LEN as usize {
                return Ok(None);
            }
            continue;
        }
        if let Some(header) = BlobHeader::decode(&block[skip..]) {
            return Ok(Some(ScannedBlob {
                offset,
                len: header.len,
                stored: header.stored,
                codec: header.codec,
                checksum: header.checksum,
                encrypted: header.encrypted,
            }));
        }
        // Continue at the next four bytes that look like the start of a blob header.
        let next = block[skip + 1..]
            .windows(BLOB_MAGIC.len())
            .position(|w| w == BLOB_MAGIC);
        offset = match next {
            Some(at) => offset + 1 + at as u64,
            None => block_at + (block.len() - BLOB_MAGIC.len() + 1).max(skip + 1) as u64,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    #[test]
    fn headers_round_trip_and_damage_is_found() {
        let header = file_header(7, 3);
        check_file_header(&header, 7, 3, "x").unwrap();
        assert!(
            check_file_header(&header, 7, 4, "x")
                .unwrap_err()
                .is_corruption()
        );
        assert!(
            check_file_header(&header, 8, 3, "x")
                .unwrap_err()
                .is_corruption()
        );
        for bit in 0..8 * FILE_HEADER_LEN {
            let mut bad = header;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check_file_header(&bad, 7, 3, "x").is_err(), "bit {bit}");
        }
        let blob = BlobHeader {
            codec: BlobCodec::Zstd,
            encrypted: false,
            len: 9_000,
            stored: 77,
            checksum: 5,
        };
        assert_eq!(BlobHeader::decode(&blob.encode()), Some(blob));
        assert_eq!(blob.encode()[5], 0);
        let encrypted = BlobHeader {
            encrypted: true,
            ..blob
        };
        assert_eq!(BlobHeader::decode(&encrypted.encode()), Some(encrypted));
    }

    #[test]
    fn places_round_trip_and_damage_is_found() {
        let mut rng = StdRng::seed_from_u64(3);
        for count in [0usize, 1, 50] {
            let table: Vec<(u64, u64)> = (0..count).map(|i| (i as u64 * 9, rng.random())).collect();
            let bytes = places(&table, 4, 4096);
            let size = 4096 + bytes.len() as u64;
            let footer = &bytes[bytes.len() - FOOTER_LEN..];
            assert_eq!(places_begin(footer, size), Some(4096));
            assert_eq!(take_places(&bytes, 4, 4096), Some(table));
            for _ in 0..300 {
                let mut bad = bytes.clone();
                let at = rng.random_range(0..bad.len());
                bad[at] ^= 1 << rng.random_range(0..8);
                assert_eq!(take_places(&bad, 4, 4096), None);
                let _ = places_begin(&bad[bad.len() - FOOTER_LEN..], size);
                bad.truncate(at);
                assert_eq!(take_places(&bad, 4, 4096), None);
            }
        }
    }

    #[test]
    fn blobs_are_found_behind_holes_and_noise() {
        let header = BlobHeader {
            codec: BlobCodec::None,
            encrypted: false,
            len: 100,
            stored: 100,
            checksum: 1,
        };
        let mut file = vec![0; DATA_START as usize];
        let mut want = Vec::new();
        for gap in [0usize, 10, 70_000, 65_536, 3] {
            file.extend(std::iter::repeat_n(0, gap));
            want.push(file.len() as u64);
            file.extend_from_slice(&header.encode());
            file.extend_from_slice(&[0xab; 100]);
        }
        file.extend_from_slice(b"BLB1BLB1");
        let mut read = |at: u64, len: usize| {
            let rest = file.get(at as usize..).unwrap_or_default();
            Ok(rest[..len.min(rest.len())].to_vec())
        };
        let (mut at, mut found) = (DATA_START, Vec::new());
        while let Some(blob) = scan_blobs(at, &mut read).unwrap() {
            found.push(blob.offset);
            at = blob.offset + BLOB_HEADER_LEN + blob.stored;
        }
        assert_eq!(found, want);
    }
}
