use super::*;

fn sample() -> Batch {
    let mut batch = Batch::new();
    batch.add(b"a", Kind::Put, Value::split(b"head", b"tail"));
    batch.add(b"", Kind::Delete, Value::EMPTY);
    batch.add(&[0xff; 300], Kind::PutBlobs, Value::whole(&[1; 5000]));
    batch
}

#[test]
fn entries_round_trip() {
    let batch = Batch::from_bytes(sample().as_bytes().to_vec()).unwrap();
    assert_eq!(batch.count(), 3);
    let mut seen = Vec::new();
    batch
        .for_each(|e| seen.push((e.user_key.to_vec(), e.kind, e.value.to_owned())))
        .unwrap();
    assert_eq!(
        seen[0],
        (
            b"a".to_vec(),
            Kind::Put,
            Value::split(b"head", b"tail").to_owned()
        )
    );
    assert_eq!(seen[1].1, Kind::Delete);
    assert_eq!(seen[2].2.as_value().len(), 5000);
}

#[test]
fn every_cut_and_every_surplus_is_refused() {
    let bytes = sample().as_bytes().to_vec();
    for cut in 0..bytes.len() {
        assert!(
            Batch::from_bytes(bytes[..cut].to_vec()).is_err(),
            "cut at {cut}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(Batch::from_bytes(longer).is_err());
}
