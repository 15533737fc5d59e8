//! Certificates of an authority that one test has.

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::symm::Cipher;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder, X509Ref};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The authority,
pub const CA: &str = "ca.pem";
/// a certificate for 127.0.0.1,
pub const NODE: &str = "node.pem";
pub const NODE_KEY: &str = "node.key";
/// and one for a name that is not the node's; clients use it.
pub const OTHER: &str = "other.pem";
pub const OTHER_KEY: &str = "other.key";
/// Its key again, behind a password,
pub const LOCKED_KEY: &str = "locked.key";
/// and readable by all.
pub const OPEN_KEY: &str = "open.key";

/// Writes all of them into a directory.
pub fn write(directory: &Path) {
    let authority = Signed::new("authority", None, |_| ());
    let of = |name: &str, alternative: fn(&mut SubjectAlternativeName)| {
        Signed::new(name, Some(&authority), alternative)
    };
    let write = |name: &str, bytes: Vec<u8>| {
        let path = directory.join(name);
        std::fs::write(&path, bytes).unwrap();
        let mode = if name == OPEN_KEY { 0o644 } else { 0o600 };
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let node = of("node", |name| {
        name.ip("127.0.0.1");
    });
    let other = of("other", |name| {
        name.dns("other.example");
    });
    write(CA, authority.certificate.to_pem().unwrap());
    let locked = other
        .key
        .private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"secret");
    write(LOCKED_KEY, locked.unwrap());
    write(OPEN_KEY, other.key.private_key_to_pem_pkcs8().unwrap());
    for (signed, certificate, key) in [(node, NODE, NODE_KEY), (other, OTHER, OTHER_KEY)] {
        write(certificate, signed.certificate.to_pem().unwrap());
        write(key, signed.key.private_key_to_pem_pkcs8().unwrap());
    }
}

struct Signed {
    certificate: X509,
    key: PKey<Private>,
}

impl Signed {
    fn new(
        name: &str,
        by: Option<&Signed>,
        alternative: impl FnOnce(&mut SubjectAlternativeName),
    ) -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut subject = X509NameBuilder::new().unwrap();
        subject.append_entry_by_text("CN", name).unwrap();
        let subject = subject.build();
        let mut builder = X509::builder().unwrap();
        builder.set_version(2).unwrap();
        let number = BigNum::from_u32(name.len() as u32).unwrap();
        builder
            .set_serial_number(&number.to_asn1_integer().unwrap())
            .unwrap();
        builder.set_subject_name(&subject).unwrap();
        let issuer = by.map_or(&*subject, |by| by.certificate.subject_name());
        builder.set_issuer_name(issuer).unwrap();
        builder.set_pubkey(&key).unwrap();
        let [begin, end] = [0, 2].map(|days| Asn1Time::days_from_now(days).unwrap());
        builder.set_not_before(&begin).unwrap();
        builder.set_not_after(&end).unwrap();
        match by {
            Some(by) => {
                let mut names = SubjectAlternativeName::new();
                alternative(&mut names);
                let issuer: &X509Ref = &by.certificate;
                let names = names.build(&builder.x509v3_context(Some(issuer), None));
                builder.append_extension(names.unwrap()).unwrap();
            }
            None => {
                let ca = BasicConstraints::new().critical().ca().build().unwrap();
                builder.append_extension(ca).unwrap();
            }
        }
        let signer = by.map_or(&key, |by| &by.key);
        builder.sign(signer, MessageDigest::sha256()).unwrap();
        Self {
            certificate: builder.build(),
            key,
        }
    }
}
