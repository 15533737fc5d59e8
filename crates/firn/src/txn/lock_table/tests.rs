mod basic;
mod cycles;
mod merging;
mod model;
mod order;
mod script;
mod stress;

use super::*;

/// Waits so long that no test reaches the timeout.
pub const LONG: WaitPolicy = WaitPolicy::Wait {
    timeout_micros: 600_000_000,
};

/// Tables that merge each lock at once, that merge early, and that do not merge in small tests.
pub fn tables() -> impl Iterator<Item = LockTable> {
    [0, 1, 2, 4096].into_iter().map(|rows| {
        println!("merging at {rows}");
        LockTable::merging_at(rows)
    })
}

/// Spins until `n` requests wait.
pub fn until_waiting(table: &LockTable, n: usize) {
    while table.waits().len() != n {
        std::thread::yield_now();
    }
}
