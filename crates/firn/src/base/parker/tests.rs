use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_wakeup_before_the_sleep_is_kept() {
    let parker = Parker::default();
    parker.unpark();
    parker.unpark();
    assert!(parker.park(None));
    assert!(!parker.park(Some(Duration::from_millis(1))));
}

#[test]
fn a_sleeper_is_woken_without_a_timeout() {
    let parker = Parker::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(parker.park(None));
            done.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(5));
        assert!(!done.load(Ordering::SeqCst));
        parker.unpark();
    });
    assert!(done.load(Ordering::SeqCst));
}
