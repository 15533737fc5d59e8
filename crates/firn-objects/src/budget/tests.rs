use super::*;

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn who_waits_is_not_overtaken() {
    let budget = Budget::new(64);
    let held = budget.take(60, LONG).unwrap();
    std::thread::scope(|scope| {
        let large = scope.spawn(|| budget.take(10, LONG).map(drop).is_some());
        while budget.waiting() == 0 {
            std::thread::yield_now();
        }
        // There would be room for this one.
        assert!(budget.try_take(4).is_none());
        let small = scope.spawn(|| budget.take(4, LONG).map(drop).is_some());
        while budget.waiting() == 1 {
            std::thread::yield_now();
        }
        assert_eq!(budget.taken(), 60);
        drop(held);
        assert!(large.join().unwrap() && small.join().unwrap());
    });
    assert_eq!((budget.taken(), budget.waiting()), (0, 0));
    assert!(budget.try_take(4).is_some());
}

#[test]
fn who_gives_up_lets_the_others_pass() {
    let budget = Budget::new(64);
    let _held = budget.take(60, LONG).unwrap();
    std::thread::scope(|scope| {
        let large = scope.spawn(|| budget.take(10, Duration::from_millis(50)).is_some());
        while budget.waiting() == 0 && !large.is_finished() {
            std::thread::yield_now();
        }
        let small = scope.spawn(|| budget.take(4, LONG).is_some());
        assert!(!large.join().unwrap());
        assert!(small.join().unwrap());
    });
}
