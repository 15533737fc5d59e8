use super::{PausePoint, at, clear, on_this_thread};
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn a_handler_sees_the_points_of_its_thread_until_it_is_cleared() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&seen);
    at(PausePoint::Pinned);
    on_this_thread(move |point| into.borrow_mut().push(point));
    at(PausePoint::Pinned);
    std::thread::spawn(|| at(PausePoint::Sequenced))
        .join()
        .unwrap();
    at(PausePoint::LockGranted);
    clear();
    at(PausePoint::Published);
    assert_eq!(
        *seen.borrow(),
        [PausePoint::Pinned, PausePoint::LockGranted]
    );
}

#[test]
fn points_within_the_handler_are_not_reported() {
    let calls = Rc::new(RefCell::new(0));
    let count = Rc::clone(&calls);
    on_this_thread(move |_| {
        *count.borrow_mut() += 1;
        at(PausePoint::Pinned);
    });
    at(PausePoint::Pinned);
    at(PausePoint::Pinned);
    clear();
    assert_eq!(*calls.borrow(), 2);
}
