//! Waiting for sockets of the operating system.
#![allow(clippy::disallowed_methods)] // Deadlines are times of the machine's clock.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

/// Waits until a socket is ready. Returns false at the deadline, on the clock that began at
/// `start`. Deadlines are shorter than the milliseconds of `poll`; this call is `ppoll`.
pub(super) fn wait(
    socket: &impl AsFd,
    flags: PollFlags,
    deadline_us: u64,
    start: Instant,
) -> io::Result<bool> {
    loop {
        let left_us = deadline_us.saturating_sub(now_us(start));
        if left_us == 0 {
            return Ok(false);
        }
        let left = Timespec {
            tv_sec: (left_us / 1_000_000) as i64,
            tv_nsec: (left_us % 1_000_000 * 1000) as _,
        };
        match poll(&mut [PollFd::new(socket, flags)], Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Microseconds since `start`.
pub(super) fn now_us(start: Instant) -> u64 {
    start.elapsed().as_micros() as u64
}
