//! One connection to a node, and one batch on it at a time.
//!
//! A batch that is late stays *pending*: its answers will come before those of any later request.
//! So the connection takes no other batch until [`Connection::receive`] has seen the end of that
//! one. Taking a late answer for the next request's is the classic error of such clients. Here a
//! type state prevents it ([`Connection::send`] refuses), the tokens of the batch would show it,
//! and the name in the value would show it once more.

use crate::link::{Clock, Socket};
use crate::meta::{Answer, Commands, END_OF_BATCH, Parsed, STATS, parse};
use crate::name::Name;
use std::io;

/// Bytes that a read asks for at least.
const READ_MIN: usize = 4096;
/// A buffer that has grown beyond this is given back after its batch.
const KEPT_BUFFER: usize = 256 << 10;
/// Counters that a node may send. It has about a hundred.
const COUNTERS_MAX: u64 = 1000;

/// How a wait for answers ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// The end of the batch was seen; the connection is free.
    Ended,
    /// The deadline passed; the batch is pending.
    Late,
    /// The connection is useless: closed, or the node sent what the protocol does not allow.
    Broken,
}

/// How long to wait for answers.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Until then the caller polls, which finds an answer sooner than sleep.
    pub poll_until_us: u64,
    /// Then it gives up.
    pub deadline_us: u64,
}

/// The kind of a batch; it decides which answers are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pending {
    /// Values with these tokens, in this order.
    Gets { next: u64, end: u64 },
    /// Refusals of puts, at most so many.
    Puts { left: u64 },
    /// Counters, at most so many.
    Counters { left: u64 },
}

/// A connection.
pub struct Connection {
    socket: Box<dyn Socket>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    request: Vec<u8>,
    next_opaque: u64,
    first_opaque: u64,
    /// Longest value of the pending batch, bytes.
    value_max: usize,
    pending: Option<Pending>,
    /// Why the socket is useless, if it said so.
    error: Option<io::Error>,
}

impl Connection {
    /// Over an open socket.
    pub fn new(socket: Box<dyn Socket>) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            request: Vec::new(),
            next_opaque: 1,
            first_opaque: 1,
            value_max: 0,
            pending: None,
            error: None,
        }
    }

    /// Why the socket is useless, if it said so.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Whether a batch is pending.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Sends a batch of gets, whose values have at most `value_max` bytes. Returns whether all of
    /// it
    /// was written; if not, the connection is useless.
    pub fn send_gets<'a>(
        &mut self,
        names: impl Iterator<Item = &'a Name>,
        value_max: usize,
        deadline_us: u64,
    ) -> bool {
        if !self.is_free() {
            return false;
        }
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        self.value_max = value_max;
        self.first_opaque = self.next_opaque;
        for name in names {
            crate::meta::write_get(&mut request, name, self.next_opaque);
            self.next_opaque += 1;
        }
        request.extend_from_slice(END_OF_BATCH);
        let pending = Pending::Gets {
            next: self.first_opaque,
            end: self.next_opaque,
        };
        let sent = self.send(&request, pending, deadline_us);
        self.request = request;
        sent
    }

    /// Sends a batch of puts and deletions (nothing: a probe), without its end. Returns as
    /// [`Self::send_gets`].
    pub(crate) fn send_puts(&mut self, mut commands: Commands, deadline_us: u64) -> bool {
        if !self.is_free() {
            return false;
        }
        commands.end();
        let left = commands.puts();
        self.pending = Some(Pending::Puts { left });
        let wants_pieces = self.socket.wants_pieces();
        let mut write = |bytes: &[u8]| self.socket.write_all(bytes, deadline_us);
        let written = match wants_pieces {
            true => commands.pieces().try_for_each(write),
            false => write(commands.bytes()),
        };
        self.note(written)
    }

    /// Asks for the counters of the node. Returns as [`Self::send_gets`].
    pub fn send_stats(&mut self, deadline_us: u64) -> bool {
        self.send(STATS, Pending::Counters { left: COUNTERS_MAX }, deadline_us)
    }

    /// Bytes that nobody asked for would be taken for the beginning of the answer.
    fn is_free(&self) -> bool {
        self.pending.is_none() && self.start == self.end
    }

    fn send(&mut self, request: &[u8], pending: Pending, deadline_us: u64) -> bool {
        if !self.is_free() {
            return false;
        }
        self.pending = Some(pending);
        let written = self.socket.write_all(request, deadline_us);
        self.note(written)
    }

    /// Keeps the error of a write. Returns whether there was none.
    fn note(&mut self, written: io::Result<()>) -> bool {
        self.error = written.err();
        self.error.is_none()
    }

    /// Waits for the end of the batch. Values go to `on_answer` with the index of their name in the
    /// batch; refusals and counters with index 0.
    pub fn receive(
        &mut self,
        clock: &dyn Clock,
        wait: Wait,
        on_answer: &mut dyn FnMut(usize, Answer),
    ) -> Received {
        let (mut has_read, mut timed_out) = (false, false);
        loop {
            let needed = match parse(&self.buffer[self.start..self.end], self.value_max) {
                Parsed::Bad => return Received::Broken,
                Parsed::Incomplete(needed) => needed,
                Parsed::Answer(answer, len) => {
                    let Some(pending) = &mut self.pending else {
                        return Received::Broken;
                    };
                    match pending.accept(&answer) {
                        Accepted::End => {
                            self.start += len;
                            return self.finish_batch();
                        }
                        Accepted::Foreign => return Received::Broken,
                        Accepted::Answer(opaque) => {
                            let index = opaque.saturating_sub(self.first_opaque) as usize;
                            on_answer(index, answer);
                            self.start += len;
                        }
                    }
                    continue;
                }
            };
            // Bytes that keep coming do not move the deadline.
            if has_read && clock.now_us() >= wait.deadline_us {
                return Received::Late;
            }
            self.make_room(needed);
            match self.socket.try_read(&mut self.buffer[self.end..]) {
                Ok(Some(count)) => {
                    self.end += count;
                    has_read = true;
                }
                Err(error) => return self.broken(error),
                Ok(None) => {
                    let now_us = clock.now_us();
                    if timed_out || now_us >= wait.deadline_us {
                        return Received::Late;
                    }
                    if now_us < wait.poll_until_us {
                        std::hint::spin_loop();
                        continue;
                    }
                    // After a sleep over the deadline the answer may be there all the same.
                    match self.socket.wait_readable(wait.deadline_us) {
                        Ok(readable) => timed_out = !readable,
                        Err(error) => return self.broken(error),
                    }
                }
            }
        }
    }

    fn broken(&mut self, error: io::Error) -> Received {
        self.error = Some(error);
        Received::Broken
    }

    /// The batch has ended: nothing may be left of it.
    fn finish_batch(&mut self) -> Received {
        self.pending = None;
        if self.start != self.end {
            return Received::Broken;
        }
        (self.start, self.end) = (0, 0);
        if self.buffer.len() > KEPT_BUFFER {
            self.buffer = Vec::new();
        }
        Received::Ended
    }

    /// Makes the buffer large enough for an answer of `needed` bytes from `start` on.
    fn make_room(&mut self, needed: usize) {
        let wanted = needed.max(self.end - self.start + READ_MIN);
        if self.start + wanted > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if wanted > self.buffer.len() {
                self.buffer.resize(wanted.next_multiple_of(READ_MIN), 0);
            }
        }
    }
}

enum Accepted {
    Answer(u64),
    End,
    Foreign,
}

impl Pending {
    /// Whether an answer belongs to the batch. Tokens must ascend, so no value comes twice.
    fn accept(&mut self, answer: &Answer) -> Accepted {
        match (self, answer) {
            (Pending::Gets { next, end }, Answer::Value { opaque, .. })
                if (*next..*end).contains(opaque) =>
            {
                *next = opaque + 1;
                Accepted::Answer(*opaque)
            }
            (Pending::Gets { .. } | Pending::Puts { .. }, Answer::EndOfBatch)
            | (Pending::Counters { .. }, Answer::EndOfCounters) => Accepted::End,
            (Pending::Puts { left }, Answer::NotTaken)
            | (Pending::Counters { left }, Answer::Counter(..))
                if *left > 0 =>
            {
                *left -= 1;
                Accepted::Answer(0)
            }
            _ => Accepted::Foreign,
        }
    }
}

#[cfg(test)]
mod tests;
