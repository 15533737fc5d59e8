use super::*;

fn bucket(url: &str) -> Bucket {
    match StorageUrl::parse(url).unwrap() {
        StorageUrl::Bucket(bucket) => bucket,
        StorageUrl::Directory(path) => panic!("{path:?}"),
    }
}

#[test]
fn directories_and_buckets_are_read() {
    let directory = StorageUrl::parse("file:///shared/firn").unwrap();
    assert_eq!(directory, StorageUrl::Directory("/shared/firn".into()));
    let plain = bucket("s3://my.bucket-1");
    assert_eq!(
        (plain.name.as_str(), plain.prefix.as_str()),
        ("my.bucket-1", "")
    );
    assert_eq!(
        (plain.endpoint, plain.region, plain.style),
        (None, None, None)
    );
    let full = bucket("s3://data/a/b/?endpoint=http://[::1]:7070/&region=eu-1&style=path");
    assert_eq!((full.name.as_str(), full.prefix.as_str()), ("data", "a/b"));
    assert_eq!(full.endpoint.as_deref(), Some("http://[::1]:7070"));
    assert_eq!(full.region.as_deref(), Some("eu-1"));
    assert_eq!(full.style, Some(Style::Path));
}

#[test]
fn errors_say_what_is_wrong() {
    for (url, says) in [
        ("", "neither with s3:// nor with file://"),
        ("/shared", "neither with s3:// nor with file://"),
        ("gs://bucket", "\"gs\" is neither s3 nor file"),
        ("file://shared", "three slashes"),
        ("file:///a?b", "no ?, # or %"),
        ("s3://", "\"\" is no name of a bucket"),
        ("s3://My_Bucket", "\"My_Bucket\" is no name of a bucket"),
        ("s3://-ab", "\"-ab\" is no name of a bucket"),
        ("s3://bucket/a//b", "the prefix \"a//b\""),
        ("s3://bucket/../b", "the prefix \"../b\""),
        (
            "s3://bucket?endpoint=127.0.0.1:70",
            "neither with http:// nor with https://",
        ),
        ("s3://bucket?endpoint=http://", "no scheme, host and port"),
        (
            "s3://bucket?endpoint=http://h/path",
            "no scheme, host and port",
        ),
        ("s3://bucket?region=", "\"\" is no region"),
        ("s3://bucket?style=dns", "neither path nor virtual"),
        (
            "s3://bucket?acl=public",
            "\"acl\" is none of endpoint, region, style",
        ),
    ] {
        let error = StorageUrl::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}

#[test]
fn credentials_are_refused_and_not_repeated() {
    for url in [
        "s3://key:secret@bucket/prefix",
        "s3://bucket?endpoint=http://key:secret@host:1",
    ] {
        let error = StorageUrl::parse(url).unwrap_err().to_string();
        assert!(error.contains("credentials do not stand"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
