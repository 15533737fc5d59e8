//! Reads the events of one binary log file in order.

use crate::base::{Error, Result};
use crate::env::{Env, ReadClass, ReadFile};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8] = b"\xfebin";
const HEADER: usize = 19;
const CHECKSUM: u64 = 4;
/// Number of bytes of an event's body that the reader keeps; it only computes the checksum over the
/// rest.
const KEPT: usize = 1024;
const BUFFER: u64 = 256 << 10;

/// A flag in the description event at the start of a file: the server sets it while it writes the
/// file. The event's checksum does not cover the flag.
const IN_USE: u16 = 1;

pub(super) const ROTATE: u8 = 4;
pub(super) const FORMAT_DESCRIPTION: u8 = 15;
pub(super) const XID: u8 = 16;
pub(super) const START_ENCRYPTION: u8 = 164;

/// The description of a file: its first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Description {
    /// Creation time of the file, seconds since 1970.
    pub(super) created: u32,
    /// Id of the server that created the file.
    pub(super) server_id: u32,
    /// Whether a server run begins with this file: at the server's start, or after `RESET MASTER`.
    pub(super) is_first: bool,
    /// The server has not closed the file.
    pub(super) in_use: bool,
}

/// The next item of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextEvent<'a> {
    /// An event.
    Event {
        kind: u8,
        /// The first bytes of the event's body, [`KEPT`] at most.
        body: &'a [u8],
    },
    /// The file ends directly behind the previous event.
    End,
    /// The file ends within an event, or the length in an event's header is wrong.
    Torn,
    /// An event with a wrong checksum, or too short to have one.
    Damaged,
}

/// A reader that passes over a file once, from start to end.
pub(super) struct Events {
    pub(super) description: Description,
    input: EventInput,
    has_checksums: bool,
    kept: Vec<u8>,
}

impl Events {
    /// Opens a file of the server's binary log and reads the format description event at its start.
    ///
    /// # Errors
    /// `NotFound` if it is missing; `Corruption` if it does not begin as a binary log;
    /// `Unsupported` for another version; `Io`.
    pub(super) fn open(env: &dyn Env, path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let damaged = |what| Err(Error::corruption(name.clone(), 0, what));
        let mut input = EventInput::new(env.open(path)?, name.clone())?;
        let mut magic = [0; MAGIC.len()];
        if input.rest() < MAGIC.len() as u64 {
            return damaged("it is empty");
        }
        input.fill(&mut magic)?;
        if magic != *MAGIC {
            return damaged("it does not begin as a binary log");
        }
        let mut body = Vec::new();
        let header = input.header()?;
        let Some(header) = header.filter(|header| header.kind == FORMAT_DESCRIPTION) else {
            return damaged("it does not begin with a description of its format");
        };
        // The body: version, server version, time, length of headers, header length of each event
        // kind, and last the checksum algorithm. The event itself always has a checksum.
        if !input.body(&header, true, &mut body)? || !(58..KEPT).contains(&body.len()) {
            return damaged("the description of its format is damaged");
        }
        let version = u16::from_le_bytes([body[0], body[1]]);
        let algorithm = body[body.len() - 1];
        if version != 4 || usize::from(body[56]) != HEADER || algorithm > 1 {
            return Err(Error::unsupported(format!("the format of {name}")));
        }
        let description = Description {
            created: header.when,
            server_id: header.server_id,
            is_first: body[52..56] != [0; 4],
            in_use: header.flags() & IN_USE != 0,
        };
        Ok(Self {
            description,
            input,
            has_checksums: algorithm == 1,
            kept: body,
        })
    }

    /// Reads the next event.
    ///
    /// # Errors
    /// `Unsupported` where encryption begins; `Io`. Damage is no error, but [`NextEvent::Torn`] or
    /// [`NextEvent::Damaged`].
    pub(super) fn next(&mut self) -> Result<NextEvent<'_>> {
        if self.input.rest() == 0 {
            return Ok(NextEvent::End);
        }
        let Some(header) = self.input.header()? else {
            return Ok(NextEvent::Torn);
        };
        if !self
            .input
            .body(&header, self.has_checksums, &mut self.kept)?
        {
            return Ok(NextEvent::Damaged);
        }
        if header.kind == START_ENCRYPTION {
            return Err(Error::unsupported(format!(
                "{} is encrypted",
                self.input.name
            )));
        }
        Ok(NextEvent::Event {
            kind: header.kind,
            body: &self.kept,
        })
    }
}

/// The header of an event.
struct EventHeader {
    when: u32,
    kind: u8,
    server_id: u32,
    /// Length of the event, header included.
    len: u32,
    bytes: [u8; HEADER],
}

impl EventHeader {
    fn flags(&self) -> u16 {
        u16::from_le_bytes([self.bytes[17], self.bytes[18]])
    }
}

/// A buffered reader of a file's bytes.
struct EventInput {
    file: Arc<dyn ReadFile>,
    name: String,
    size: u64,
    at: u64,
    buffer: Vec<u8>,
    /// Offset in the file of the buffer's first byte.
    buffer_at: u64,
}

impl EventInput {
    fn new(file: Arc<dyn ReadFile>, name: String) -> Result<Self> {
        Ok(Self {
            size: file.size()?,
            file,
            name,
            at: 0,
            buffer: Vec::new(),
            buffer_at: 0,
        })
    }

    fn rest(&self) -> u64 {
        self.size - self.at
    }

    /// Returns at least one and at most `wanted` of the next bytes of the file, and moves behind
    /// them. The file must not be at its end.
    fn next(&mut self, wanted: u64) -> Result<&[u8]> {
        if self.at == self.buffer_at + self.buffer.len() as u64 {
            self.buffer.resize(self.rest().min(BUFFER) as usize, 0);
            self.buffer_at = self.at;
            self.file
                .read_exact_at(ReadClass::Log, self.at, &mut self.buffer)?;
        }
        let bytes = &self.buffer[(self.at - self.buffer_at) as usize..];
        let bytes = &bytes[..bytes.len().min(wanted as usize)];
        self.at += bytes.len() as u64;
        Ok(bytes)
    }

    fn fill(&mut self, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let bytes = self.next(out.len() as u64)?;
            out[..bytes.len()].copy_from_slice(bytes);
            let len = bytes.len();
            out = &mut out[len..];
        }
        Ok(())
    }

    /// Reads the next header; `None` if no whole event follows.
    fn header(&mut self) -> Result<Option<EventHeader>> {
        if self.rest() < HEADER as u64 {
            return Ok(None);
        }
        let mut bytes = [0; HEADER];
        self.fill(&mut bytes)?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let header = EventHeader {
            when: number(0),
            kind: bytes[4],
            server_id: number(5),
            len: number(9),
            bytes,
        };
        let body = u64::from(header.len).checked_sub(HEADER as u64);
        Ok(body.is_some_and(|len| len <= self.rest()).then_some(header))
    }

    /// Reads the body behind `header` and puts its first bytes into `kept`. Returns false if the
    /// body is too short to end with a checksum, or if the checksum is wrong.
    fn body(
        &mut self,
        header: &EventHeader,
        has_checksum: bool,
        kept: &mut Vec<u8>,
    ) -> Result<bool> {
        kept.clear();
        let checksum = if has_checksum { CHECKSUM } else { 0 };
        let Some(mut left) = u64::from(header.len).checked_sub(HEADER as u64 + checksum) else {
            return Ok(false);
        };
        let mut crc = crc32fast::Hasher::new();
        let mut head = header.bytes;
        if header.kind == FORMAT_DESCRIPTION {
            head[17..].copy_from_slice(&(header.flags() & !IN_USE).to_le_bytes());
        }
        crc.update(&head);
        while left > 0 {
            let bytes = self.next(left)?;
            left -= bytes.len() as u64;
            kept.extend(bytes.iter().take(KEPT - kept.len()));
            if has_checksum {
                crc.update(bytes);
            }
        }
        let mut stored = [0; CHECKSUM as usize];
        if has_checksum {
            self.fill(&mut stored)?;
        }
        Ok(!has_checksum || u32::from_le_bytes(stored) == crc.finalize())
    }
}

#[cfg(test)]
mod tests;
