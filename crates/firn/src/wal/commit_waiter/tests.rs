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

/// A committer in the list that the queue is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Listed {
    lsn: Lsn,
    durable: bool,
    absent: bool,
}

/// Random committers and questions, compared with a plain list.
#[test]
fn a_queue_answers_as_a_list_of_all_committers_does() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    for seed in 0..200 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut queue = CommitQueue::default();
        let mut list: Vec<Listed> = Vec::new();
        for _ in 0..200 {
            let at: Lsn = rng.random_range(0..50);
            let beyond = list.iter().filter(|w| w.lsn > at);
            assert_eq!(queue.beyond(at), beyond.count());
            let durable = list.iter().any(|w| w.durable && w.lsn > at);
            assert_eq!(queue.is_durable_wanted_beyond(at), durable);
            match rng.random_range(0..10) {
                0 => {
                    let written = rng.random_range(at..50);
                    let mut woken = WakeList::new();
                    queue.wake_done(at, written, &mut woken);
                    let end = |w: &Listed| if w.durable { at } else { written };
                    let done = list.extract_if(.., |w| w.lsn <= end(w)).collect();
                    check_woken(woken, done, WakeReason::Done);
                }
                1 => {
                    let first = list.iter().filter(|w| w.durable).min_by_key(|w| w.lsn);
                    let first = first.copied();
                    check_taken(queue.take_durable(), first, &mut list);
                }
                2 => {
                    let beyond = list.iter().filter(|w| w.lsn > at);
                    let first = beyond.min_by_key(|w| (w.lsn, !w.durable)).copied();
                    check_taken(queue.take_beyond(at), first, &mut list);
                }
                3 if rng.random_bool(0.1) => {
                    let mut woken = WakeList::new();
                    queue.wake_failed(&mut woken);
                    check_woken(woken, std::mem::take(&mut list), WakeReason::Failed);
                }
                _ => {
                    let (durable, absent) = (rng.random(), rng.random());
                    let committer = match absent {
                        true => Committer::Absent(Acknowledgement::new(|_| ())),
                        false => Committer::Asleep(Parker::current()),
                    };
                    queue.push(CommitWaiter {
                        lsn: at,
                        durable,
                        committer,
                    });
                    list.push(Listed {
                        lsn: at,
                        durable,
                        absent,
                    });
                }
            }
            assert_eq!(queue.is_empty(), list.is_empty());
        }
    }
}

/// Checks that the committers of `done` are woken or left to the log writer.
fn check_woken(mut woken: WakeList, done: Vec<Listed>, reason: WakeReason) {
    let absent = done.iter().filter(|w| w.absent).count();
    let sent = std::mem::take(&mut woken.absent);
    assert_eq!(sent.len(), absent);
    let is_durable = |sent: &(Acknowledgement, bool)| sent.1 == (reason == WakeReason::Done);
    assert!(sent.iter().all(is_durable));
    assert_eq!(woken.signals(), vec![reason; done.len() - absent]);
}

/// Checks that the queue has chosen the first committer of the list, and removes it there if its
/// thread sleeps. An absent one stays in both.
fn check_taken(taken: Option<NextThread>, first: Option<Listed>, list: &mut Vec<Listed>) {
    match (taken, first) {
        (None, None) => {}
        (Some(NextThread::LogWriter), Some(first)) => assert!(first.absent),
        (Some(NextThread::Committer(taken)), Some(first)) => {
            assert!(!first.absent);
            assert_eq!((taken.lsn, taken.durable), (first.lsn, first.durable));
            let at = list.iter().position(|one| *one == first);
            list.remove(at.expect("the list has it"));
        }
        (taken, first) => panic!("{taken:?} instead of {first:?}"),
    }
}
