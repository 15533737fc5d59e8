//! TLS by the system's OpenSSL, which believes the certificates of the system.

use crate::s3::{KEYS, bucket};
use crate::versitygw::Versitygw;
use bytes::Bytes;
use firn_objects::{Environment, ErrorKind, ObjectStore, S3Store};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use std::path::Path;
use std::process::Command;

/// Tells the test that runs as a process of its own where the server is.
const URL: &str = "FIRN_TEST_TLS_URL";

/// Writes a certificate of 127.0.0.1 that nobody but itself has signed.
fn make_certificate(certificate: &Path, key: &Path) {
    let pair = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", "firn test").unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let number = BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap();
    builder.set_serial_number(&number).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&pair).unwrap();
    builder
        .set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::days_from_now(2).unwrap())
        .unwrap();
    builder
        .append_extension(BasicConstraints::new().ca().build().unwrap())
        .unwrap();
    let mut alternative = SubjectAlternativeName::new();
    alternative.ip("127.0.0.1");
    let alternative = alternative
        .build(&builder.x509v3_context(None, None))
        .unwrap();
    builder.append_extension(alternative).unwrap();
    builder.sign(&pair, MessageDigest::sha256()).unwrap();
    std::fs::write(certificate, builder.build().to_pem().unwrap()).unwrap();
    std::fs::write(key, pair.private_key_to_pem_pkcs8().unwrap()).unwrap();
}

#[test]
fn only_certificates_that_the_system_believes_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert"), directory.path().join("key"));
    make_certificate(&certificate, &key);
    let Some(server) = Versitygw::start_with_tls(&certificate, &key) else {
        return;
    };
    let store = S3Store::open(&bucket(&server.url("p")), &Environment::of(&KEYS)).unwrap();
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(
        error.to_string().contains("certificate verify failed"),
        "{error}"
    );
    // OpenSSL reads the variable in a process of its own.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tls::over_tls"])
        .env("SSL_CERT_FILE", &certificate)
        .env(URL, server.url("p"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
#[ignore = "a part of the test above"]
fn over_tls() {
    let url = std::env::var(URL).unwrap();
    let store = S3Store::open(&bucket(&url), &Environment::of(&KEYS)).unwrap();
    store.put("a", Bytes::from_static(b"over tls")).unwrap();
    assert_eq!(store.get("a").unwrap(), "over tls");
}
