use super::*;

#[test]
fn a_signal_before_or_after_the_wait_arrives_once() {
    let parker = Parker::current();
    parker.wake(WakeReason::Lead);
    assert_eq!(parker.wait(), WakeReason::Lead);
    assert_eq!(parker.signal.load(Ordering::Relaxed), 0);
    let (to_main, from_thread) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        to_main.send(Parker::current()).unwrap();
        (0..3).map(|_| Parker::current().wait()).collect::<Vec<_>>()
    });
    let parker = from_thread.recv().unwrap();
    for signal in [WakeReason::Done, WakeReason::Sync, WakeReason::Failed] {
        while parker.signal.load(Ordering::Relaxed) != 0 {
            std::thread::yield_now();
        }
        parker.wake(signal);
    }
    assert_eq!(
        sleeper.join().unwrap(),
        [WakeReason::Done, WakeReason::Sync, WakeReason::Failed]
    );
}
