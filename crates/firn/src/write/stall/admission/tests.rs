use super::*;
use std::cell::RefCell;
use std::rc::Rc;

const SECOND_US: u64 = 1_000_000;

/// Notes the numbers of the writers that are woken.
struct Sleeper(usize, Rc<RefCell<Vec<usize>>>);

impl Wake for Sleeper {
    fn wake(&self) {
        self.1.borrow_mut().push(self.0);
    }
}

#[derive(Default)]
struct Line {
    admission: Admission<Sleeper>,
    woken: Rc<RefCell<Vec<usize>>>,
    arrived: usize,
}

impl Line {
    fn arrive(&mut self, now: u64) -> Arrival {
        let (number, woken) = (self.arrived, Rc::clone(&self.woken));
        self.arrived += 1;
        self.admission.arrive(now, || Sleeper(number, woken))
    }

    /// A writer that has to wait, and sleeps until the returned time.
    fn waits(&mut self, now: u64) -> (TicketNumber, Option<u64>) {
        let Arrival::Wait(number) = self.arrive(now) else {
            panic!("it does not wait");
        };
        match self.admission.look(now, number) {
            Look::Sleep(until) => (number, until),
            other => panic!("{other:?}"),
        }
    }

    fn woken(&mut self) -> Vec<usize> {
        self.woken.take()
    }

    fn set(&mut self, now: u64, mode: Mode) {
        self.admission.set_mode(now, mode, Some(1000.0));
    }

    fn passes(&mut self, now: u64, number: TicketNumber) -> bool {
        matches!(self.admission.look(now, number), Look::Pass(_))
    }
}

#[test]
fn each_writer_knows_its_time() {
    let mut line = Line::default();
    assert_eq!(line.arrive(0), Arrival::Pass(GateCharge::default()));
    line.set(0, Mode::Limited(1_000_000));
    assert!(matches!(line.arrive(0), Arrival::Pass(_)));
    let mut waiting: Vec<_> = (1..50).map(|_| line.waits(0)).collect();
    for at in 0..waiting.len() {
        let turn = 1000 * (at as u64 + 1);
        let (number, until) = waiting[at];
        assert_eq!(until, Some(turn));
        assert!(!line.passes(turn - 200, number));
        assert!(line.passes(turn, number));
        // One more becomes one of the first, and sets its timer.
        let next = at + WINDOW;
        let woken = line.woken();
        match waiting.get_mut(next) {
            Some((number, until)) => {
                // Two have arrived before those that wait.
                assert_eq!((woken, *until), (vec![next + 2], None));
                let Look::Sleep(timer) = line.admission.look(turn, *number) else {
                    panic!("it passes too early");
                };
                *until = timer;
            }
            None => assert_eq!(woken, []),
        }
    }
    assert_eq!(
        (line.admission.waiting(), line.admission.line.len()),
        (0, 0)
    );
}

#[test]
fn a_higher_rate_wakes_the_first_ones_and_those_the_next() {
    let mut line = Line::default();
    line.set(0, Mode::Limited(10_000));
    line.arrive(0);
    let waiting: Vec<_> = (1..100).map(|_| line.waits(0).0).collect();
    line.set(1000, Mode::Limited(1_000_000));
    let first: Vec<usize> = (1..=WINDOW).collect();
    assert_eq!(line.woken(), first);
    // A second change wakes nobody again who has yet to run.
    line.set(1001, Mode::Limited(1_000_001));
    assert_eq!(line.woken(), []);
    for (at, number) in waiting.into_iter().enumerate() {
        assert!(line.passes(SECOND_US / 9, number));
        let next = at + 1 + WINDOW;
        assert_eq!(line.woken(), if next < 100 { vec![next] } else { vec![] });
    }
}

#[test]
fn a_stop_keeps_the_order_and_a_failure_ends_all_waits() {
    let mut line = Line::default();
    line.set(0, Mode::Stopped);
    let waiting: Vec<_> = (0..20).map(|_| line.waits(0)).collect();
    assert!(waiting.iter().all(|(_, until)| until.is_none()));
    line.set(SECOND_US, Mode::Limited(1_000_000));
    assert_eq!(line.woken().len(), WINDOW);
    assert!(line.passes(SECOND_US, waiting[0].0));
    assert!(!line.passes(SECOND_US, waiting[1].0));
    // The writers of the window set their timers; the next stop wakes nobody.
    line.set(SECOND_US + 10, Mode::Stopped);
    line.woken();
    assert!(!line.passes(2 * SECOND_US, waiting[1].0));
    line.set(2 * SECOND_US, Mode::Failing);
    assert!(matches!(line.arrive(2 * SECOND_US), Arrival::Fail));
    for (number, _) in &waiting[1..] {
        assert_eq!(line.admission.look(2 * SECOND_US, *number), Look::Fail);
    }
    let mut woken = line.woken();
    woken.dedup();
    assert_eq!(woken.len(), 19);
    assert_eq!(line.admission.waiting(), 0);
}

#[test]
fn a_killed_writer_leaves_its_time_to_those_behind_it() {
    let mut line = Line::default();
    line.set(0, Mode::Limited(10_000));
    line.arrive(0);
    let waiting: Vec<_> = (1..20).map(|_| line.waits(0)).collect();
    line.admission.give_up(0, waiting[4].0);
    assert_eq!(line.woken(), [], "those before it keep their times");
    for &(number, turn) in &waiting[..4] {
        let turn = turn.unwrap();
        assert!(!line.passes(turn - 200, number));
        assert!(line.passes(turn, number));
    }
    // The sixth goes at the time of the fifth, which was killed.
    assert!(line.woken().contains(&6));
    assert!(line.passes(waiting[4].1.unwrap(), waiting[5].0));
    assert!(!line.passes(waiting[4].1.unwrap(), waiting[6].0));
}

/// All but the last of many are killed: the last one goes at once, and nobody pays for the others.
#[test]
fn the_last_one_goes_when_all_others_are_killed() {
    let mut line = Line::default();
    line.set(0, Mode::Limited(10_000));
    line.arrive(0);
    let mut waiting: Vec<_> = (1..4000).map(|_| line.waits(0).0).collect();
    let last = waiting.pop().unwrap();
    for number in waiting.into_iter().rev() {
        line.admission.give_up(1000, number);
    }
    let Look::Sleep(Some(until)) = line.admission.look(1000, last) else {
        panic!("it passes too early");
    };
    assert!(until <= 100_000, "{until}");
    assert!(line.passes(until, last));
    let work = line.admission.visits();
    assert!(work < 4000 * (2 * WINDOW as u64 + 2), "{work}");
}

#[test]
fn a_limit_that_returns_begins_anew() {
    let mut line = Line::default();
    line.set(0, Mode::Limited(10_000));
    let Arrival::Pass(old) = line.arrive(0) else {
        panic!("the first one waits");
    };
    line.admission.committed(1 << 30);
    line.set(10, Mode::Open);
    line.admission.committed(1 << 30);
    assert_eq!(line.arrive(20), Arrival::Pass(GateCharge::default()));
    line.set(SECOND_US, Mode::Limited(10_000));
    assert_eq!(line.admission.pace().owed(), 0.0);
    // The charge of the earlier limit is void.
    line.admission.settle(SECOND_US, old, 5000);
    assert_eq!(line.admission.pace().owed(), 0.0);
    assert_eq!(line.admission.pace().typical(), 1000.0);
    let Arrival::Pass(mut new) = line.arrive(SECOND_US) else {
        panic!("the first one waits");
    };
    assert_eq!(line.waits(SECOND_US).1, Some(SECOND_US + 100_000));
    let mut both = old;
    both.add(new);
    assert_eq!(both, new);
    new.add(both);
    assert_eq!((new.bytes, new.passes), (2000, 2));
}

/// The gate opens for a moment while writers wait: those that are still in the line when the limit
/// returns stay in their order, ahead of newcomers.
#[test]
fn a_limit_that_returns_at_once_keeps_the_line() {
    let mut line = Line::default();
    line.set(0, Mode::Limited(10_000));
    line.arrive(0);
    let waiting: Vec<_> = (1..10).map(|_| line.waits(0)).collect();
    line.set(10, Mode::Open);
    assert!(line.passes(11, waiting[0].0));
    line.set(12, Mode::Limited(10_000));
    let (newcomer, until) = line.waits(12);
    assert!(until > waiting[8].1);
    for (number, _) in &waiting[1..] {
        assert!(line.passes(2 * SECOND_US, *number));
    }
    assert!(line.passes(2 * SECOND_US, newcomer));
    line.set(2 * SECOND_US, Mode::Open);
    assert!(matches!(line.arrive(2 * SECOND_US), Arrival::Pass(_)));
}

/// A transaction that commits less than it was charged lets those that wait go earlier.
#[test]
fn a_refund_wakes_the_first_ones() {
    let mut line = Line::default();
    line.admission
        .set_mode(0, Mode::Limited(10_000), Some(50_000.0));
    let Arrival::Pass(charge) = line.arrive(0) else {
        panic!("the first one waits");
    };
    let (next, until) = line.waits(0);
    assert_eq!(until, Some(5 * SECOND_US));
    line.admission.committed(1000);
    line.admission.settle(1000, charge, 1000);
    assert_eq!(line.woken(), [1]);
    assert!(line.passes(SECOND_US / 10, next));
}
