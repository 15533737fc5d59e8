//! The cryptography of `object_store` by the system's OpenSSL.

use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer as ObjectStoreSigner,
    SigningAlgorithm,
};
use object_store::{Error, Result};
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sha::Sha256;
use openssl::sign::Signer;

/// Digests and HMAC by OpenSSL, for `AmazonS3Builder::with_crypto_provider`.
#[derive(Debug)]
pub struct OpenSsl;

fn unsupported(text: &str) -> Error {
    Error::NotSupported {
        source: text.to_owned().into(),
    }
}

impl CryptoProvider for OpenSsl {
    fn digest(&self, algorithm: DigestAlgorithm) -> Result<Box<dyn DigestContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Digest {
                sha256: Some(Sha256::new()),
                finished: [0; 32],
            })),
            _ => Err(unsupported("only SHA-256 is supported")),
        }
    }

    fn hmac(&self, algorithm: DigestAlgorithm, secret: &[u8]) -> Result<Box<dyn HmacContext>> {
        match algorithm {
            DigestAlgorithm::Sha256 => Ok(Box::new(Hmac {
                secret: secret.to_owned(),
                data: Vec::new(),
                finished: Vec::new(),
            })),
            _ => Err(unsupported("only SHA-256 is supported")),
        }
    }

    /// S3 does not use it.
    fn sign(&self, _: SigningAlgorithm, _: &[u8]) -> Result<Box<dyn ObjectStoreSigner>> {
        Err(unsupported("RSA signatures are not supported"))
    }
}

struct Digest {
    sha256: Option<Sha256>,
    finished: [u8; 32],
}

impl DigestContext for Digest {
    fn update(&mut self, data: &[u8]) {
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(data);
        }
    }

    fn finish(&mut self) -> Result<&[u8]> {
        if let Some(sha256) = self.sha256.take() {
            self.finished = sha256.finish();
        }
        Ok(&self.finished)
    }
}

/// Keeps its data until the end: that is some lines of text.
struct Hmac {
    secret: Vec<u8>,
    data: Vec<u8>,
    finished: Vec<u8>,
}

impl HmacContext for Hmac {
    fn update(&mut self, data: &[u8]) {
        self.data.extend_from_slice(data);
    }

    fn finish(&mut self) -> Result<&[u8]> {
        let computed = PKey::hmac(&self.secret).and_then(|key| {
            Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot_to_vec(&self.data)
        });
        self.finished = computed.map_err(|error| Error::Generic {
            store: "S3",
            source: Box::new(error),
        })?;
        Ok(&self.finished)
    }
}
