use super::*;

/// The number of the session says what the server wants to hear.
unsafe extern "C" fn reports(waiter: *mut c_void) -> c_int {
    waiter as usize as c_int - 10
}

/// A server that wants no callback.
pub(crate) const SILENT: firn_host = firn_host {
    log: None,
    lock_wait_reports: None,
    lock_wait: None,
    order_is_fixed: None,
    preferred_victim: None,
    wait_begins: None,
    wait_ends: None,
    stall_begins: None,
    stall_ends: None,
    commit_wait_begins: None,
    commit_wait_ends: None,
    may_hold_answer: None,
    hold_answer: None,
    release_answer: None,
    statement: None,
    collation: None,
    holds_metadata_lock: None,
    compute_virtual: None,
};

#[test]
fn the_server_says_which_lock_waits_it_wants_to_hear_of() {
    let waits = HostWaits::new(&firn_host {
        lock_wait_reports: Some(reports),
        ..SILENT
    });
    let wanted = [10, 11, 12].map(|session| waits.wanted_reports(session));
    assert_eq!(
        wanted,
        [WaitReports::None, WaitReports::Nearest, WaitReports::All]
    );
    // Without a session, or without a server that says so, it hears of none.
    assert_eq!(waits.wanted_reports(0), WaitReports::None);
    let silent = HostWaits::new(&SILENT);
    assert_eq!(silent.wanted_reports(12), WaitReports::None);
}
