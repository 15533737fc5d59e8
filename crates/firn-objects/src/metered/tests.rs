use super::*;
use crate::mem::{Faults, MemObjects, VirtualClock};

fn metered(seed: u64) -> (Arc<MemObjects>, Metered, Arc<RequestMeter>) {
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(seed));
    let store = Arc::new(MemObjects::new(seed, Arc::clone(&clock)));
    let shared: Arc<dyn ObjectStore> = Arc::<MemObjects>::clone(&store);
    let meter = Arc::new(RequestMeter::default());
    let counting = Metered::new(shared, clock, Arc::clone(&meter));
    (store, counting, meter)
}

#[test]
fn requests_are_counted_by_kind() {
    let (store, counting, meter) = metered(1);
    counting.put("a", Bytes::from(vec![7; 1000])).unwrap();
    counting.put_new("b", Bytes::from(vec![7; 10])).unwrap();
    counting.put_new("b", Bytes::from(vec![7; 10])).unwrap();
    let id = counting.begin_upload("c").unwrap();
    let part = counting.put_part("c", &id, 0, Bytes::from(vec![7; 50]));
    counting
        .complete_upload("c", &id, &[part.unwrap()])
        .unwrap();
    let id = counting.begin_upload("d").unwrap();
    counting.abort_upload("d", &id).unwrap();
    assert_eq!(counting.get("a").unwrap().len(), 1000);
    assert_eq!(counting.get_range("a", 10..30).unwrap().len(), 20);
    let ranges = [0..1, 5..7, 9..12];
    assert_eq!(counting.get_ranges("a", &ranges).unwrap().len(), 3);
    assert_eq!(counting.head("a").unwrap().bytes, 1000);
    assert!(counting.get("nothing").is_err());
    counting.list_page("", None).unwrap();
    counting.list_uploads_page("", None).unwrap();
    counting.delete("a").unwrap();

    let figures = |kind| {
        let stats = meter.stats(kind);
        (stats.requests, stats.bytes, stats.failed)
    };
    assert_eq!(figures(RequestKind::Put), (7, 1060, 0));
    assert_eq!(figures(RequestKind::Get), (7, 1026, 0));
    assert_eq!(figures(RequestKind::List), (2, 0, 0));
    assert_eq!(figures(RequestKind::Delete), (2, 0, 0));
    let (requests, bytes_read) = store.traffic();
    assert_eq!((requests, bytes_read), (18, 1026));
}

#[test]
fn requests_that_fail_or_take_long_are_counted() {
    let (store, counting, meter) = metered(2);
    counting.put("a", Bytes::from(vec![7; 100])).unwrap();
    store.set_faults(Faults {
        latency_us: 200_000,
        ..Faults::default()
    });
    for _ in 0..100 {
        counting.get("a").unwrap();
    }
    store.set_faults(Faults {
        lost: 1000,
        timeout_us: 10_000_000,
        ..Faults::default()
    });
    assert!(counting.get("a").is_err());
    let gets = meter.stats(RequestKind::Get);
    assert_eq!((gets.requests, gets.failed, gets.bytes), (101, 1, 10_000));
    let latency = |percent| gets.latencies.percentile_us(percent).unwrap();
    assert!((1..=250_000).contains(&latency(50)), "{}", latency(50));
    assert!(gets.latencies.max_us() >= 10_000_000);
    assert_eq!(meter.stats(RequestKind::Put).failed, 0);
}
