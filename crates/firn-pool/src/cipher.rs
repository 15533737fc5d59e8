//! Encryption of values under a key that all servers share: XAES-256-GCM, which is AES-256-GCM
//! with a nonce of 192 bits. The first half of the nonce chooses a key that is derived from the
//! shared one; the second half is the nonce under the derived key.
//!
//! A `Cipher` draws the first half at random when it is made, and counts in the second. So no
//! nonce of a derived key repeats, however many servers write for however long; random nonces of
//! 96 bits under one key would be safe for 2³² values only, which a busy server puts in days.

use aes_gcm::aead::AeadInPlace;
use aes_gcm::aes::Aes256;
use aes_gcm::aes::cipher::{BlockEncrypt, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 24;
/// Bytes of a tag.
pub const TAG_LEN: usize = 16;

const HALF: usize = NONCE_LEN / 2;
/// Derived keys of other servers that are kept.
const KEPT_KEYS: usize = 64;

/// The shared key. Whoever reads the file that it comes from refuses one that others than its owner
/// can read.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Parses the content of a key file: 64 hexadecimal digits, and space around them.
    ///
    /// # Errors
    /// A sentence for the user, without anything of the content.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.trim();
        let hex = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let values: Option<Vec<u8>> = digits.bytes().map(hex).collect();
        match values {
            Some(values) if values.len() == 64 => Ok(Self(std::array::from_fn(|at| {
                values[2 * at] << 4 | values[2 * at + 1]
            }))),
            _ => Err("a key file has 64 hexadecimal digits (openssl rand -hex 32)".into()),
        }
    }

    /// Mixed into names, so that servers with different keys, or none, never meet: each would take
    /// the other's values for lies, and delete them.
    pub(crate) fn name_mask(&self) -> [u8; 16] {
        let mut mask = *b"firn-pool names\x01";
        Aes256::new(&self.0.into()).encrypt_block((&mut mask).into());
        mask
    }

    /// The key under which the nonces with this first half are used: CMAC with AES-256 as a
    /// counter-mode derivation function (NIST SP 800-108).
    fn derive(&self, half: &[u8; HALF]) -> Aes256Gcm {
        let aes = Aes256::new(&self.0.into());
        let mut mask = [0u8; 16];
        aes.encrypt_block((&mut mask).into());
        let carry = mask[0] >> 7;
        let mask = (u128::from_be_bytes(mask) << 1) ^ (u128::from(carry) * 0x87);
        let mut derived = [0u8; 32];
        for (number, out) in (1u8..).zip(derived.chunks_exact_mut(16)) {
            let mut message = [0, number, b'X', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            message[4..].copy_from_slice(half);
            out.copy_from_slice(&(u128::from_be_bytes(message) ^ mask).to_be_bytes());
            aes.encrypt_block(out.into());
        }
        Aes256Gcm::new(&derived.into())
    }
}

/// Encrypts and decrypts values.
pub struct Cipher {
    key: Key,
    own: ([u8; HALF], Aes256Gcm),
    next: AtomicU64,
    /// Keys of other servers, and of earlier runs of this one.
    others: ArcSwap<Vec<([u8; HALF], Arc<Aes256Gcm>)>>,
}

impl Cipher {
    /// `random` must never have been used before.
    pub fn new(key: Key, random: [u8; HALF]) -> Self {
        let own = (random, key.derive(&random));
        Self {
            key,
            own,
            next: AtomicU64::new(0),
            others: ArcSwap::default(),
        }
    }

    /// Encrypts `bytes` in place. `bound` must be given again to decrypt them.
    pub fn encrypt(&self, bound: &[u8], bytes: &mut [u8]) -> ([u8; NONCE_LEN], [u8; TAG_LEN]) {
        let mut nonce = [0; NONCE_LEN];
        nonce[..HALF].copy_from_slice(&self.own.0);
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.next.fetch_add(1, Relaxed).to_be_bytes());
        let tag =
            self.own
                .1
                .encrypt_in_place_detached(Nonce::from_slice(&nonce[HALF..]), bound, bytes);
        // The limit of AES-GCM is 64 GiB.
        (
            nonce,
            tag.expect("a value is far below the limit of the cipher")
                .into(),
        )
    }

    /// Decrypts `bytes` in place. False if they, the nonce, the tag or `bound` are not those of a
    /// call of [`Self::encrypt`] under the same key; the bytes are then rubbish.
    pub fn decrypt(
        &self,
        bound: &[u8],
        nonce: &[u8; NONCE_LEN],
        bytes: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let (mut half, counter) = ([0; HALF], &nonce[HALF..]);
        half.copy_from_slice(&nonce[..HALF]);
        let (counter, tag) = (Nonce::from_slice(counter), Tag::from_slice(tag));
        if half == self.own.0 {
            return self
                .own
                .1
                .decrypt_in_place_detached(counter, bound, bytes, tag)
                .is_ok();
        }
        let others = self.others.load();
        let found = others
            .iter()
            .find(|other| other.0 == half)
            .map(|other| &other.1);
        if let Some(derived) = found {
            return derived
                .decrypt_in_place_detached(counter, bound, bytes, tag)
                .is_ok();
        }
        let derived = Arc::new(self.key.derive(&half));
        let right = derived
            .decrypt_in_place_detached(counter, bound, bytes, tag)
            .is_ok();
        // Forged nonces must not push the keys of living servers out.
        if right {
            let kept = |others: &Arc<Vec<_>>| {
                let skipped = (others.len() + 1).saturating_sub(KEPT_KEYS);
                let kept = others
                    .iter()
                    .skip(skipped)
                    .filter(|(other, _)| *other != half)
                    .cloned();
                kept.chain([(half, derived.clone())]).collect::<Vec<_>>()
            };
            self.others.rcu(kept);
        }
        right
    }
}

#[cfg(test)]
mod tests;
