use super::*;
use crate::env::PosixEnv;

fn limiter(rate: u64) -> RateLimiter {
    let mutable = Arc::new(MutableOptions::default());
    mutable.background_io_rate.store(rate, Ordering::Relaxed);
    RateLimiter::new(Arc::new(PosixEnv::new()), mutable)
}

static GO: AtomicBool = AtomicBool::new(false);

#[test]
fn without_a_rate_nobody_waits() {
    let limiter = limiter(0);
    limiter.owe(1 << 40);
    limiter.take(1 << 40, &GO).unwrap();
    assert_eq!(limiter.slept_us(), 0);
}

#[test]
fn a_compaction_pays_for_what_it_takes_and_for_flushes() {
    let limiter = limiter(10_000_000);
    // Bytes for 20 ms of the compaction and for 30 ms of a flush, which does not sleep itself.
    limiter.owe(300_000);
    assert_eq!(limiter.slept_us(), 0);
    limiter.take(200_000, &GO).unwrap();
    let slept = limiter.slept_us();
    assert!((1..=50_000).contains(&slept), "{slept}");
    // The debt is proportional to the bytes; the clock has moved by less than a second.
    let owed = limiter.charge(20_000_000);
    assert!((1_000_000..=2_000_000).contains(&owed), "{owed}");
}

#[test]
fn a_stop_and_a_lifted_limit_end_the_wait() {
    let limiter = limiter(1);
    let stopped = AtomicBool::new(true);
    let ended = limiter.take(1_000_000, &stopped).unwrap_err();
    assert_eq!(*ended.kind(), ErrorKind::Interrupted);
    limiter
        .mutable
        .background_io_rate
        .store(0, Ordering::Relaxed);
    limiter.take(1_000_000, &GO).unwrap();
    assert_eq!(limiter.slept_us(), 0);
}
