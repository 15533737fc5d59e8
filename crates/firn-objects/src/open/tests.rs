use super::*;
use crate::env::{SystemClock, SystemFiles};
use crate::error::ErrorKind;
use bytes::Bytes;

fn open(url: &str) -> Result<Arc<dyn ObjectStore>> {
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let clock = Arc::new(SystemClock::new());
    open_store(url, &Environment::of(&keys), Arc::new(SystemFiles), clock)
}

#[test]
fn a_url_opens_its_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&format!("file://{}", directory.path().display())).unwrap();
    store.put("a/b", Bytes::from_static(b"one")).unwrap();
    assert_eq!(store.get("a/b").unwrap(), "one");
    // No request yet.
    assert!(open("s3://bucket/prefix").is_ok());
    let kind = |url| open(url).map(|_| ()).unwrap_err().kind();
    assert_eq!(kind("file:///nowhere/at/all"), ErrorKind::Absent);
    assert_eq!(kind("ftp://host"), ErrorKind::Invalid);
}
