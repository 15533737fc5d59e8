//! Writes binary logs for tests, in the server's format.

use super::events::{FORMAT_DESCRIPTION, ROTATE, START_ENCRYPTION, XID};
use crate::env::Env;
use std::path::Path;

const STOP: u8 = 3;
const QUERY: u8 = 2;
const SERVER_ID: u32 = 5;

/// A file of a binary log that grows by events.
pub struct TestBinlog {
    bytes: Vec<u8>,
    checksums: bool,
    when: u32,
}

impl TestBinlog {
    /// A file created at `when`, in seconds since 1970; with `is_first`, a server run begins with
    /// it.
    pub fn begin(when: u32, is_first: bool, checksums: bool) -> Self {
        let mut written = Self {
            bytes: b"\xfebin".to_vec(),
            checksums: true,
            when,
        };
        let mut body = 4u16.to_le_bytes().to_vec();
        body.extend_from_slice(&[b'1'; 50]);
        body.extend_from_slice(&(if is_first { when } else { 0 }).to_le_bytes());
        body.push(19);
        body.extend_from_slice(&[8; 171]);
        body.push(u8::from(checksums));
        written.event(FORMAT_DESCRIPTION, &body);
        written.checksums = checksums;
        // Mark the file as one that the server still has open. As in the server, the event's
        // checksum was computed without this flag, so set the flag afterwards.
        written.bytes[4 + 17] = 1;
        written
    }

    fn event(&mut self, kind: u8, body: &[u8]) {
        let checksum = if self.checksums { 4 } else { 0 };
        let from = self.bytes.len();
        let len = 19 + body.len() + checksum;
        self.bytes.extend_from_slice(&self.when.to_le_bytes());
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&SERVER_ID.to_le_bytes());
        self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
        self.bytes
            .extend_from_slice(&((from + len) as u32).to_le_bytes());
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(body);
        if self.checksums {
            let crc = crc32fast::hash(&self.bytes[from..]);
            self.bytes.extend_from_slice(&crc.to_le_bytes());
        }
    }

    /// Adds a committed transaction whose changes take `changes` bytes.
    pub fn transaction(&mut self, xid: u64, changes: usize) -> &mut Self {
        self.event(QUERY, &vec![b'q'; changes]);
        self.event(XID, &xid.to_ne_bytes());
        self
    }

    /// Closes the file with a rotate event, as a server that goes on with the file `next`, which is
    /// named without its directory.
    pub fn rotate(&mut self, next: &str) -> &mut Self {
        self.event(ROTATE, &[&4u64.to_le_bytes(), next.as_bytes()].concat());
        self.bytes[4 + 17] = 0;
        self
    }

    /// Closes the file with a stop event, as a server that shuts down.
    pub fn stop(&mut self) -> &mut Self {
        self.event(STOP, b"");
        self.bytes[4 + 17] = 0;
        self
    }

    /// Adds the event after which a file is encrypted.
    pub fn encrypt(&mut self) -> &mut Self {
        self.event(START_ENCRYPTION, &[1; 17]);
        self
    }

    /// The file so far.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the file.
    ///
    /// # Panics
    /// If the environment fails.
    pub fn save(&self, env: &dyn Env, path: &str) {
        let mut file = env.create(Path::new(path)).unwrap();
        file.append(&self.bytes).unwrap();
        file.sync().unwrap();
    }
}

/// The xid image that the server gives to its transaction `xid`.
pub fn xid_image(xid: u64) -> Vec<u8> {
    let mut image = 1u64.to_le_bytes().to_vec();
    image.extend_from_slice(&[24, 0]);
    image.extend_from_slice(b"MySQLXid");
    image.extend_from_slice(&u64::from(SERVER_ID).to_ne_bytes());
    image.extend_from_slice(&xid.to_ne_bytes());
    image
}
