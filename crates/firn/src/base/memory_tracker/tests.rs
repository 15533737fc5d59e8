use super::*;

#[test]
fn parts_add_up_and_crossings_are_heard() {
    let gauge = Arc::new(MemoryTracker::default());
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    gauge.observe(3 * STEP, move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut one = MemoryCharge::new(Arc::clone(&gauge));
    let mut two = MemoryCharge::new(Arc::clone(&gauge));
    one.set(1);
    assert_eq!((gauge.sum(), heard.load(Ordering::Relaxed)), (STEP, 0));
    two.set(2 * STEP);
    assert_eq!((gauge.sum(), heard.load(Ordering::Relaxed)), (3 * STEP, 1));
    one.set(0);
    drop(two);
    assert_eq!((gauge.sum(), heard.load(Ordering::Relaxed)), (0, 2));
}

#[test]
fn what_is_split_off_stays_counted_once() {
    let gauge = Arc::new(MemoryTracker::default());
    let mut one = MemoryCharge::new(Arc::clone(&gauge));
    one.set(5 * STEP);
    let part = one.split_off(STEP + 1);
    let rest = one.split_off(9 * STEP);
    assert_eq!(gauge.sum(), 5 * STEP);
    drop(part);
    assert_eq!(gauge.sum(), 3 * STEP);
    one.set(STEP);
    assert_eq!(gauge.sum(), 4 * STEP);
    drop(rest);
    assert_eq!(gauge.sum(), STEP);
}
