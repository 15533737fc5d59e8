use super::tests_stub::Stub;
use super::*;
use crate::url::StorageUrl;
use object_store::client::{CryptoProvider, DigestAlgorithm};

const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "hidden-secret"),
];

fn bucket(url: &str) -> Bucket {
    match StorageUrl::parse(url).unwrap() {
        StorageUrl::Bucket(bucket) => bucket,
        StorageUrl::Directory(path) => panic!("{path:?}"),
    }
}

fn store(stub: &Stub) -> S3Store {
    let url = format!("s3://bucket/pre?endpoint={}", stub.url());
    S3Store::open(&bucket(&url), &Environment::of(&KEYS)).unwrap()
}

#[test]
fn digests_and_hmac_are_those_of_the_standards() {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let mut digest = OpenSsl.digest(DigestAlgorithm::Sha256).unwrap();
    digest.update(b"a");
    digest.update(b"bc");
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hex(digest.finish().unwrap()), abc);
    // RFC 4231, test case 2.
    let mut hmac = OpenSsl.hmac(DigestAlgorithm::Sha256, b"Jefe").unwrap();
    hmac.update(b"what do ya want ");
    hmac.update(b"for nothing?");
    let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(hex(hmac.finish().unwrap()), expected);
}

#[test]
fn the_bucket_is_in_the_path_or_in_the_host() {
    let urls = |url: &str, endpoint: Option<&str>| urls(&bucket(url), endpoint, "eu-1");
    let (endpoint, at, is_virtual) = urls("s3://data", None);
    assert_eq!(at, "https://data.s3.eu-1.amazonaws.com");
    assert_eq!((endpoint, is_virtual), (at, true));
    let (endpoint, at, is_virtual) = urls("s3://my.data", None);
    assert_eq!(endpoint, "https://s3.eu-1.amazonaws.com");
    assert_eq!(at, "https://s3.eu-1.amazonaws.com/my.data");
    assert!(!is_virtual);
    let (_, at, _) = urls("s3://data", Some("http://host:70"));
    assert_eq!(at, "http://host:70/data");
    let (_, at, _) = urls("s3://data?style=virtual", Some("http://host:70"));
    assert_eq!(at, "http://data.host:70");
}

#[test]
fn failures_are_told_apart() {
    let stub = Stub::start();
    let store = store(&stub);
    for (status, code, kind) in [
        ("404 Not Found", "NoSuchKey", ErrorKind::Absent),
        ("404 Not Found", "", ErrorKind::Absent),
        ("404 Not Found", "NoSuchBucket", ErrorKind::Invalid),
        ("403 Forbidden", "AccessDenied", ErrorKind::Refused),
        ("401 Unauthorized", "", ErrorKind::Refused),
        ("400 Bad Request", "ExpiredToken", ErrorKind::Refused),
        ("400 Bad Request", "BadDigest", ErrorKind::Damaged),
        ("400 Bad Request", "RequestTimeout", ErrorKind::Unreachable),
        ("400 Bad Request", "InvalidArgument", ErrorKind::Invalid),
        (
            "301 Moved Permanently",
            "PermanentRedirect",
            ErrorKind::Invalid,
        ),
        ("409 Conflict", "OperationAborted", ErrorKind::Throttled),
        ("429 Too Many Requests", "", ErrorKind::Throttled),
        ("503 Service Unavailable", "SlowDown", ErrorKind::Throttled),
        ("503 Service Unavailable", "", ErrorKind::Unreachable),
        (
            "500 Internal Server Error",
            "InternalError",
            ErrorKind::Unreachable,
        ),
        (
            "416 Range Not Satisfiable",
            "InvalidRange",
            ErrorKind::Damaged,
        ),
    ] {
        let body = format!(
            "<Error><Code>{code}</Code><Message>so &lt;it&gt; is</Message>\
             <AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId></Error>"
        );
        stub.answer(status, &body);
        let error = store.get_range("a", 0..10).unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {code}: {error}");
        assert!(
            error.to_string().starts_with("a: the store answers "),
            "{error}"
        );
        assert!(
            code.is_empty() || error.to_string().ends_with("so <it> is"),
            "{error}"
        );
        stub.answer(status, &body);
        let error = store.put("a", Bytes::from_static(b"x")).unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {code}: {error}");
        assert!(!error.to_string().contains("AKID"), "{error}");
    }
    // A store that does not know ranges.
    stub.answer("200 OK", "12345");
    assert!(store.get_range("a", 0..10).unwrap_err().kind().passes());
    for status in ["412 Precondition Failed", "304 Not Modified"] {
        stub.answer(status, "");
        assert_eq!(store.put_new("a", Bytes::new()).unwrap(), PutNew::Exists);
    }
    stub.answer(
        "409 Conflict",
        "<Error><Code>ConditionalRequestConflict</Code></Error>",
    );
    assert_eq!(
        store.put_new("a", Bytes::new()).unwrap_err().kind(),
        ErrorKind::Throttled
    );
}

#[test]
fn requests_are_made_once_and_as_they_should_be() {
    let stub = Stub::start();
    let store = store(&stub);
    stub.answer("503 Service Unavailable", "");
    store
        .put_new("a/b", Bytes::from_static(b"abc"))
        .unwrap_err();
    let requests = stub.take_requests();
    assert_eq!(requests.len(), 1, "object_store does not try again");
    let request = &requests[0];
    assert!(
        request.starts_with("PUT /bucket/pre/a/b HTTP/1.1\r\n"),
        "{request}"
    );
    for header in [
        "if-none-match: *",
        "x-amz-checksum-sha256: ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
        "x-amz-content-sha256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/",
    ] {
        assert!(request.contains(header), "{header} in {request}");
    }
    stub.answer("200 OK", "");
    store.put("a", Bytes::new()).unwrap_err();
    stub.answer("204 No Content", "");
    store.delete("a").unwrap();
    let requests = stub.take_requests();
    assert!(!requests[0].contains("if-none-match"));
    assert!(requests[1].starts_with("DELETE /bucket/pre/a HTTP/1.1\r\n"));
    assert!(store.get_range("a", 5..5).unwrap().is_empty());
    assert!(
        stub.take_requests().is_empty(),
        "an empty range needs no request"
    );
}

/// A slow link takes this long to send it; the test lets the store wait instead.
#[test]
fn a_large_object_may_take_longer_than_the_store_may_be_silent() {
    let stub = Stub::start();
    let store = store(&stub);
    let pause = SILENCE + Duration::from_secs(1);
    stub.answer_late(pause, "200 OK\r\netag: \"e\"", "");
    store.put("a", vec![0; 8 << 20].into()).unwrap();
}

#[test]
fn four_uploads_share_a_slow_link() {
    let whole = crate::store::WHOLE_BYTES_MAX;
    let limit = REQUEST + Duration::from_micros(whole * BYTE_US);
    // 10 Mbit/s.
    assert!(4 * whole < 1_250_000 * limit.as_secs());
}

/// S3 sends the head of the answer to a completion before it knows how it ends.
#[test]
fn a_completion_that_fails_after_its_head_has_failed() {
    let stub = Stub::start();
    let store = store(&stub);
    for (code, kind) in [
        ("SlowDown", ErrorKind::Throttled),
        ("InternalError", ErrorKind::Unreachable),
        ("NoSuchUpload", ErrorKind::Absent),
    ] {
        let body = format!(
            "<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>later</Message>\
             <AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId></Error>"
        );
        stub.answer("200 OK", &body);
        let parts = [PartTag("1".to_owned())];
        let id = UploadId("1".to_owned());
        let error = store.complete_upload("a", &id, &parts).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("AKID"), "{error}");
    }
}

#[test]
fn a_store_that_is_not_there_is_unreachable() {
    let stub = Stub::start();
    let store = store(&stub);
    drop(stub);
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

#[test]
fn uploads_that_have_not_ended_are_listed_in_pages() {
    let stub = Stub::start();
    let store = store(&stub);
    let upload = |key: &str, id: &str| {
        format!(
            "<Upload><Key>{key}</Key><UploadId>{id}</UploadId>\
             <Initiated>2023-11-14T22:13:20.000Z</Initiated></Upload>"
        )
    };
    let first = format!(
        "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>\
         <NextKeyMarker>pre/b&amp;c</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>\
         {}{}</ListMultipartUploadsResult>",
        upload("pre/a", "1&quot;"),
        upload("elsewhere/a", "2"),
    );
    let last = format!(
        "<ListMultipartUploadsResult>{}</ListMultipartUploadsResult>",
        upload("pre/d", "3")
    );
    stub.answer("200 OK", &first);
    stub.answer("200 OK", &last);
    let mut all = Vec::new();
    let page = |token: Option<&str>| store.list_uploads_page("", token);
    crate::store::for_each_page(page, |upload| all.push(upload)).unwrap();
    let expected = |name: &str, id: &str| UploadInfo {
        name: name.to_owned(),
        id: UploadId(id.to_owned()),
        started_s: 1_700_000_000,
    };
    assert_eq!(all, [expected("a", "1\""), expected("d", "3")]);
    let requests = stub.take_requests();
    assert!(requests[0].starts_with("GET /bucket?uploads=&prefix=pre%2F HTTP/1.1\r\n"));
    let second = "GET /bucket?uploads=&prefix=pre%2F&key-marker=pre%2Fb%26c&upload-id-marker=2 ";
    assert!(requests[1].starts_with(second), "{}", requests[1]);
    assert!(requests[1].contains("authorization: AWS4-HMAC-SHA256"));
}

#[test]
fn a_close_ends_requests_under_way() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "s3://bucket?endpoint=http://{}",
        listener.local_addr().unwrap()
    );
    let store = Arc::new(S3Store::open(&bucket(&url), &Environment::of(&KEYS)).unwrap());
    let asking = Arc::clone(&store);
    let asked = std::thread::spawn(move || asking.get("a"));
    // Nobody answers the request.
    let connection = listener.accept().unwrap();
    store.close();
    let error = asked.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(store.head("b").unwrap_err().to_string().contains("closed"));
    drop(connection);
}
