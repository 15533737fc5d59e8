//! Sockets of the operating system.
#![allow(clippy::disallowed_methods)] // The one place that may read the clock.

use super::readiness::{now_us, wait};
use super::resolver::Resolver;
use super::tls::{Tls, TlsFiles};
use super::{Clock, Link, Socket};
use crate::node_list::Address;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// TCP and unix sockets, and the clock of the machine.
pub struct SystemLink {
    start: Instant,
    resolver: Resolver,
    tls: OnceLock<Result<Tls, String>>,
}

impl SystemLink {
    /// Without files for TLS. Its clock begins now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            resolver: Resolver::default(),
            tls: OnceLock::new(),
        }
    }

    /// With these files for TLS.
    ///
    /// # Errors
    /// A file cannot be read, or does not hold what it should: a sentence for the user.
    pub fn with_tls(files: &TlsFiles) -> Result<Self, String> {
        let link = Self::new();
        // Without files, nobody may ever need OpenSSL to be set up well.
        if files.is_any() {
            let _ = link.tls.set(Ok(Tls::new(files)?));
        }
        Ok(link)
    }
}

impl Default for SystemLink {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemLink {
    fn now_us(&self) -> u64 {
        now_us(self.start)
    }

    fn random(&self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match getrandom(&mut *bytes, GetRandomFlags::empty()) {
                Ok(count) => bytes = &mut bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Link for SystemLink {
    fn connect(&self, address: &Address, deadline_us: u64) -> io::Result<Box<dyn Socket>> {
        match address {
            Address::Tcp(host, port) => {
                let stream = self.connect_tcp(host, *port, deadline_us)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(SystemSocket {
                    stream,
                    start: self.start,
                }))
            }
            Address::Tls(host, port) => {
                let tls = self.tls.get_or_init(|| Tls::new(&TlsFiles::default()));
                let failed = |error: &String| io::Error::other(format!("TLS: {error}"));
                let tls = tls.as_ref().map_err(failed)?;
                let stream = self.connect_tcp(host, *port, deadline_us)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                tls.connect(host, stream, self.start, deadline_us)
            }
            Address::Unix(path) => {
                // A stopped node accepts nothing: once its backlog is full, a blocking connect
                // hangs.
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                connect(&socket, &SocketAddrUnix::new(path.as_str())?)?;
                Ok(Box::new(SystemSocket {
                    stream: UnixStream::from(socket),
                    start: self.start,
                }))
            }
        }
    }
}

impl SystemLink {
    /// Tries all addresses of the host.
    fn connect_tcp(&self, host: &str, port: u16, deadline_us: u64) -> io::Result<TcpStream> {
        let pending = || io::Error::new(ErrorKind::WouldBlock, "its name is being resolved");
        let addresses = self.resolver.addresses(host, self.now_us());
        let addresses = addresses.ok_or_else(pending)?;
        let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
        for (tried, address) in addresses.iter().enumerate() {
            let address = &SocketAddr::new(*address, port);
            // One that drops packets leaves time for the others.
            let left_us = deadline_us.saturating_sub(self.now_us());
            let left_us = left_us / (addresses.len() - tried) as u64;
            if left_us == 0 {
                return Err(ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(address, Duration::from_micros(left_us)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

struct SystemSocket<S> {
    stream: S,
    start: Instant,
}

impl<S: Read + Write + AsFd + Send> Socket for SystemSocket<S> {
    fn write_all(&mut self, mut bytes: &[u8], deadline_us: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !wait(&self.stream, PollFlags::OUT, deadline_us, self.start)? {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn try_read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_readable(&mut self, deadline_us: u64) -> io::Result<bool> {
        wait(&self.stream, PollFlags::IN, deadline_us, self.start)
    }
}
