use super::super::tests_stub::Stub;
use super::*;
use crate::error::ErrorKind;
use crate::s3::S3Store;
use crate::store::ObjectStore;
use crate::url::{Bucket, StorageUrl};
use std::io::Write;

fn open(endpoint: &str, variables: &[(&str, &str)]) -> Result<S3Store> {
    let url = format!("s3://bucket?endpoint={endpoint}");
    let bucket: Bucket = match StorageUrl::parse(&url).unwrap() {
        StorageUrl::Bucket(bucket) => bucket,
        StorageUrl::Directory(path) => panic!("{path:?}"),
    };
    S3Store::open(&bucket, &Environment::of(variables))
}

/// The id of the key that signed the request.
fn key_of(request: &str) -> &str {
    let (_, rest) = request.split_once("Credential=").expect("it is signed");
    rest.split_once('/').unwrap().0
}

fn signed_with(variables: &[(&str, &str)]) -> (String, String) {
    let stub = Stub::start();
    let store = open(&stub.url(), variables).unwrap();
    stub.answer("404 Not Found", "");
    store.get("a").unwrap_err();
    let request = stub.take_requests().remove(0);
    (key_of(&request).to_owned(), request)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

const FILE: &str = "
# a comment
[default]
aws_access_key_id = KEY1
aws_secret_access_key=hidden-one

[ other ]
aws_access_key_id=KEY2
aws_secret_access_key = hidden-two
aws_session_token = token-two
[half]
aws_access_key_id = KEY3
";

#[test]
fn the_environment_comes_first() {
    let file = file(FILE);
    let path = file.path().to_str().unwrap();
    let (key, request) = signed_with(&[
        ("AWS_ACCESS_KEY_ID", "KEY0"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ("AWS_SESSION_TOKEN", "token-0"),
        ("AWS_SHARED_CREDENTIALS_FILE", path),
    ]);
    assert_eq!(key, "KEY0");
    assert!(
        request.contains("x-amz-security-token: token-0"),
        "{request}"
    );
}

#[test]
fn then_comes_the_file_with_its_profiles() {
    let file = file(FILE);
    let path = file.path().to_str().unwrap();
    let (key, _) = signed_with(&[("AWS_SHARED_CREDENTIALS_FILE", path)]);
    assert_eq!(key, "KEY1");
    let other = [
        ("AWS_SHARED_CREDENTIALS_FILE", path),
        ("AWS_PROFILE", "other"),
    ];
    let (key, request) = signed_with(&other);
    assert_eq!(key, "KEY2");
    assert!(
        request.contains("x-amz-security-token: token-two"),
        "{request}"
    );
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::copy(path, home.path().join(".aws/credentials")).unwrap();
    let (key, _) = signed_with(&[("HOME", home.path().to_str().unwrap())]);
    assert_eq!(key, "KEY1");
}

#[test]
fn then_the_role_of_the_instance() {
    let metadata = Stub::start();
    metadata.answer("200 OK", "imds-token");
    metadata.answer("200 OK", "my-role");
    metadata.answer(
        "200 OK",
        "{\"AccessKeyId\":\"KEY9\",\"SecretAccessKey\":\"hidden\",\"Token\":\"token-9\",\
         \"Expiration\":\"2099-01-01T00:00:00Z\"}",
    );
    let (key, request) = signed_with(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url())]);
    assert_eq!(key, "KEY9");
    assert!(
        request.contains("x-amz-security-token: token-9"),
        "{request}"
    );
    let requests = metadata.take_requests();
    assert!(
        requests[0].starts_with("PUT /latest/api/token "),
        "version 2: {}",
        requests[0]
    );
    assert!(
        requests[2].contains("x-aws-ec2-metadata-token: imds-token"),
        "{}",
        requests[2]
    );
}

#[test]
fn without_credentials_the_error_says_so() {
    let metadata = Stub::start();
    metadata.answer("404 Not Found", "");
    let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url())];
    let store = open("http://127.0.0.1:1", &[(variables[0].0, &variables[0].1)]).unwrap();
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("no credentials: neither"),
        "{error}"
    );
}

#[test]
fn half_credentials_and_bad_files_are_errors_at_open() {
    let half = open("http://h", &[("AWS_ACCESS_KEY_ID", "KEY")])
        .err()
        .unwrap();
    assert!(
        half.to_string().contains("AWS_SECRET_ACCESS_KEY is not"),
        "{half}"
    );
    let half = open("http://h", &[("AWS_SECRET_ACCESS_KEY", "hidden")])
        .err()
        .unwrap();
    assert!(
        half.to_string().contains("AWS_ACCESS_KEY_ID is not"),
        "{half}"
    );
    assert!(!half.to_string().contains("hidden"));
    let file = file(FILE);
    let path = file.path().to_str().unwrap();
    for profile in ["half", "missing"] {
        let variables = [
            ("AWS_SHARED_CREDENTIALS_FILE", path),
            ("AWS_PROFILE", profile),
        ];
        let error = open("http://h", &variables).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(profile), "{error}");
        assert!(!error.to_string().contains("KEY3"), "{error}");
    }
    let error = open("http://h", &[("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")])
        .err()
        .unwrap();
    assert!(error.to_string().contains("/nowhere"), "{error}");
}

#[test]
#[allow(clippy::disallowed_methods)] // Somebody else writes the file.
fn a_file_that_is_being_written_keeps_its_credentials() {
    let file = file(FILE);
    let path = file.path().to_str().unwrap().to_owned();
    let variables = [("AWS_SHARED_CREDENTIALS_FILE", path.as_str())];
    let shared = SharedFile::find(&Environment::of(&variables)).unwrap();
    let key = || {
        let mut latest = shared.latest.lock();
        if let Some((at, _)) = &mut *latest {
            *at -= REREAD;
        }
        drop(latest);
        shared.read().unwrap().key_id.clone()
    };
    assert_eq!(key(), "KEY1");
    std::fs::write(&path, "").unwrap();
    assert_eq!(key(), "KEY1");
    std::fs::write(&path, FILE.replace("KEY1", "KEY7")).unwrap();
    assert_eq!(key(), "KEY7");
}

#[test]
fn nothing_shows_secrets() {
    let environment = Environment::of(&[("AWS_SECRET_ACCESS_KEY", "hidden")]);
    assert_eq!(
        format!("{environment:?}"),
        "Environment([\"AWS_SECRET_ACCESS_KEY\"])"
    );
    let file = file(FILE);
    let path = file.path().to_str().unwrap().to_owned();
    let variables = [("AWS_SHARED_CREDENTIALS_FILE", path.as_str())];
    let shared = SharedFile::find(&Environment::of(&variables)).unwrap();
    let credential = shared.read().unwrap();
    for text in [format!("{shared:?}"), format!("{credential:?}")] {
        assert!(!text.contains("hidden"), "{text}");
    }
}
