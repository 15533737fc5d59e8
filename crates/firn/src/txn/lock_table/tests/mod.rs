mod basic;
mod script;
mod stress;

use super::*;

/// Long enough that no test ends by it.
pub const LONG: WaitPolicy = WaitPolicy::Wait {
    timeout_micros: 600_000_000,
};

/// Spins until `n` requests wait.
pub fn until_waiting(table: &LockTable, n: usize) {
    while table.waits().len() != n {
        std::thread::yield_now();
    }
}
