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

/// Random committers and questions, compared with a plain list.
#[test]
fn a_queue_answers_as_a_list_of_all_committers_does() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    for seed in 0..200 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut queue = CommitQueue::default();
        let mut list: Vec<(Lsn, bool)> = Vec::new();
        for _ in 0..200 {
            let at: Lsn = rng.random_range(0..50);
            let beyond = list.iter().filter(|w| w.0 > at);
            assert_eq!(queue.beyond(at), beyond.count());
            let durable = list.iter().any(|w| w.1 && w.0 > at);
            assert_eq!(queue.is_durable_wanted_beyond(at), durable);
            match rng.random_range(0..10) {
                0 => {
                    let written = rng.random_range(at..50);
                    let mut woken = WakeList::new();
                    queue.wake_done(at, written, &mut woken);
                    let before = list.len();
                    list.retain(|w| w.0 > if w.1 { at } else { written });
                    let reasons = woken.signals();
                    assert_eq!(reasons, vec![WakeReason::Done; before - list.len()]);
                }
                1 => {
                    let taken = queue.take_durable().map(|w| (w.lsn, w.durable));
                    let first = list.iter().filter(|w| w.1).min().copied();
                    assert_eq!(taken, first);
                    forget(&mut list, taken);
                }
                2 => {
                    let taken = queue.take_beyond(at).map(|w| (w.lsn, w.durable));
                    let first = list.iter().map(|w| w.0).filter(|lsn| *lsn > at).min();
                    assert_eq!(taken.map(|w| w.0), first);
                    forget(&mut list, taken);
                }
                3 if rng.random_bool(0.1) => {
                    let mut woken = WakeList::new();
                    queue.wake_failed(&mut woken);
                    assert_eq!(woken.signals(), vec![WakeReason::Failed; list.len()]);
                    list.clear();
                }
                _ => {
                    let durable = rng.random();
                    let parker = Parker::current();
                    queue.push(CommitWaiter {
                        lsn: at,
                        durable,
                        parker,
                    });
                    list.push((at, durable));
                }
            }
            assert_eq!(queue.is_empty(), list.is_empty());
        }
    }
}

fn forget(list: &mut Vec<(Lsn, bool)>, taken: Option<(Lsn, bool)>) {
    if let Some(taken) = taken {
        let at = list.iter().position(|one| *one == taken);
        list.remove(at.expect("the list has it"));
    }
}
