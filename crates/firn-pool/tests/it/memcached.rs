//! A memcached that belongs to one test.

use crate::certificates;
use rustix::process::{Pid, Signal, getuid, kill_process};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a test waits for something before it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a node listens.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Tcp,
    Unix,
    /// By TLS, with a certificate of [`certificates`]. Clients show theirs.
    Tls,
}

/// A node, killed when it is dropped.
pub struct Memcached {
    child: Option<Child>,
    megabytes: u32,
    address: Address,
    directory: TempDir,
}

enum Address {
    Tcp(u16),
    Unix(PathBuf),
    Tls(u16),
}

impl Memcached {
    pub fn start(kind: Kind, megabytes: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let address = match kind {
            Kind::Tcp => Address::Tcp(free_port()),
            Kind::Unix => Address::Unix(directory.path().join("s")),
            Kind::Tls => {
                certificates::write(directory.path());
                Address::Tls(free_port())
            }
        };
        let mut node = Self {
            child: None,
            megabytes,
            address,
            directory,
        };
        node.restart();
        node
    }

    /// The node as it stands in a list.
    pub fn address(&self) -> String {
        match &self.address {
            Address::Tcp(port) => format!("127.0.0.1:{port}"),
            Address::Unix(path) => format!("unix:{}", path.display()),
            Address::Tls(port) => format!("tls:127.0.0.1:{port}"),
        }
    }

    /// The directory with its certificates.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts it again, empty, after [`Self::kill`].
    pub fn restart(&mut self) {
        assert!(self.child.is_none());
        // Debian has it beside the programs of users.
        let path = format!("{}:/usr/bin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("memcached");
        command
            .env("PATH", path)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command.args([
            "-m",
            &self.megabytes.to_string(),
            "-n",
            "2048",
            "-f",
            "1.07",
            "-U",
            "0",
        ]);
        if getuid().is_root() {
            command.args(["-u", "root"]);
        }
        match &self.address {
            Address::Tcp(port) => command.args(["-l", "127.0.0.1", "-p", &port.to_string()]),
            Address::Unix(path) => command.arg("-s").arg(path),
            Address::Tls(port) => {
                let file = |option: &str, name: &str| {
                    let path = self.directory.path().join(name);
                    format!("{option}={}", path.display())
                };
                command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-Z"]);
                command.args(["-o", &file("ssl_chain_cert", certificates::NODE)]);
                command.args(["-o", &file("ssl_key", certificates::NODE_KEY)]);
                command.args(["-o", &file("ssl_ca_cert", certificates::CA)]);
                // It wants a certificate of its clients.
                command.args(["-o", "ssl_verify_mode=2"])
            }
        };
        let child = command.spawn();
        self.child = Some(child.expect("memcached is missing: run scripts/deps.sh test"));
        eventually("the node listens", || match &self.address {
            Address::Tcp(port) | Address::Tls(port) => {
                TcpStream::connect(("127.0.0.1", *port)).is_ok()
            }
            Address::Unix(path) => UnixStream::connect(path).is_ok(),
        });
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().unwrap().id();
        kill_process(Pid::from_raw(id as i32).unwrap(), signal).unwrap();
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody listens on now. Tests run side by side, so each begins its search elsewhere.
fn free_port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let start = 20_000 + std::process::id() as usize % 1000 * 10;
    loop {
        let port = (start + NEXT.fetch_add(1, Ordering::Relaxed)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until something holds, and fails if it never does.
pub fn eventually(text: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {text}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
