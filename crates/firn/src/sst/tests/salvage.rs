//! Tests of salvaging a damaged SST. Blocks that a newer version wrote, or that are encrypted, are
//! not damage: a salvage that skipped them would lose their data.

use super::edges::{key, resealed};
use super::*;
use crate::base::{Error, ErrorKind, checksum};
use crate::sst::format::FOOTER_LEN;
use std::cmp::Reverse;

fn salvage(bytes: Vec<u8>) -> Result<(Arc<Salvage>, Vec<Error>)> {
    let file = MemFile(Arc::new(Mutex::new(bytes)));
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let mut lost = Vec::new();
    let mut say = |error| lost.push(error);
    let salvage = Salvage::open(Arc::new(file), FILE_ID, NAME.into(), cache, &mut say)?;
    Ok((salvage, lost))
}

/// Files with all option sets, and the stored length of the first block of each.
fn files() -> Vec<(Vec<u8>, usize)> {
    let mut model = Model::new();
    for n in 0..500 {
        let value = (Kind::Put, vec![n as u8; 9], vec![3; 20]);
        model.insert((key(1, n), Reverse(7)), value);
    }
    let each = option_sets(512).into_iter().map(|options| {
        let bytes = write(&model, options).0;
        let reader = open(bytes.clone()).unwrap();
        let len = reader.blocks().unwrap().iter().next().unwrap().bytes;
        (bytes, len as usize)
    });
    each.collect()
}

#[track_caller]
fn refused(bytes: Vec<u8>, said: &str) {
    let error = salvage(bytes).err().expect("it is refused");
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(said), "{error}");
}

/// Damages the footer, so that the index cannot be found and the salvage must search for the
/// blocks.
fn without_footer(mut bytes: Vec<u8>) -> Vec<u8> {
    let footer = bytes.len() - FOOTER_LEN;
    bytes[footer] ^= 1;
    bytes
}

#[test]
fn blocks_that_are_encrypted_or_of_newer_kinds_are_refused_where_the_index_names_them() {
    for (bytes, len) in files() {
        for envelope in [1, 200] {
            let changed = resealed(&bytes, 0, len, |block| block[2] = envelope);
            refused(changed, "is encrypted");
        }
        for (kind, said) in [(8, "columnar"), (9, "columnar"), (10, "block kind")] {
            refused(resealed(&bytes, 0, len, |block| block[1] = kind), said);
        }
        refused(resealed(&bytes, 0, len, |block| block[3] = 1), "flags");
        let footer = bytes.len() - FOOTER_LEN;
        for (flags, said) in [(1, "is encrypted"), (2, "feature flag")] {
            let of_footer = |footer: &mut [u8]| footer[48] = flags;
            refused(resealed(&bytes, footer, FOOTER_LEN - 8, of_footer), said);
        }
        // In contrast, a damaged block is no reason to refuse the file.
        let mut damaged = bytes.clone();
        damaged[1] ^= 8;
        assert_eq!(salvage(damaged).unwrap().0.lost().len(), 1);
    }
}

#[test]
fn reserved_blocks_are_refused_without_an_index_too() {
    for (bytes, len) in files() {
        let (found, lost) = salvage(without_footer(bytes.clone())).unwrap();
        assert_eq!((lost.len(), found.lost().len()), (1, 0));
        for kind in [8, 9] {
            let changed = resealed(&bytes, 0, len, |block| block[1] = kind);
            refused(without_footer(changed), "columnar");
        }
    }
}

#[test]
fn encrypted_blocks_are_refused_without_an_index_too() {
    use crate::base::encryption_envelope::{EncryptedUnit, Envelope};
    for (codec, stored) in [(0, 400), (2, 90), (3, 94)] {
        let mut block = vec![codec, 1, 1, 0];
        block.extend_from_slice(&400u32.to_le_bytes());
        let sealed = EncryptedUnit {
            envelope: Envelope {
                key: 1,
                version: 2,
                nonce: [3; 12],
            },
            ciphertext: &vec![7; stored],
            tag: &[4; 16],
        };
        sealed.put(&mut block);
        let sum = checksum::placed(&block, FILE_ID, 0);
        block.extend_from_slice(&sum.to_le_bytes());
        block.extend_from_slice(&[0; 2 * FOOTER_LEN]);
        refused(block, "is encrypted");
    }
}

#[test]
fn an_odd_property_that_nobody_knows_is_refused_with_the_index_and_without() {
    let (bytes, _) = files().swap_remove(0);
    let footer = bytes.len() - FOOTER_LEN;
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let at = u64_at(footer + 20) as usize;
    let len = u32::from_le_bytes(bytes[footer + 28..footer + 32].try_into().unwrap()) as usize;
    assert_eq!(bytes[at], 0, "stored as they are");
    // Change the tag of the codec property, which is even, to an odd one that no version knows.
    let name = bytes[at..at + len]
        .windows(2)
        .rposition(|pair| pair == [2, 4])
        .unwrap();
    let changed = resealed(&bytes, at, len, |block| block[name] = 13);
    refused(changed.clone(), "property");
    refused(without_footer(changed), "property");
}
