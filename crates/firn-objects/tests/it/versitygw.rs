//! An S3-compatible server that belongs to one test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a test waits for the server before it fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves the bucket `firn` from a directory; killed when it is dropped.
pub struct Versitygw {
    child: Option<Child>,
    program: PathBuf,
    port: u16,
    /// Certificate and key, if it speaks TLS.
    tls: Option<(PathBuf, PathBuf)>,
    directory: TempDir,
}

impl Versitygw {
    /// None if it is not installed; the test then says so and shows nothing.
    pub fn start() -> Option<Self> {
        Self::start_as(None)
    }

    /// The same, with TLS.
    pub fn start_with_tls(certificate: &Path, key: &Path) -> Option<Self> {
        Self::start_as(Some((certificate.to_owned(), key.to_owned())))
    }

    fn start_as(tls: Option<(PathBuf, PathBuf)>) -> Option<Self> {
        let Some(program) = find() else {
            println!(
                "SKIPPED: versitygw is neither in the PATH nor in FIRN_VERSITYGW. \
                 scripts/versitygw.sh builds it as build/tools/versitygw."
            );
            return None;
        };
        let directory = TempDir::new().unwrap();
        for name in ["objects/firn", "versions"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let mut server = Self {
            child: None,
            program,
            port: free_port(),
            tls,
            directory,
        };
        server.restart();
        Some(server)
    }

    pub fn url(&self, prefix: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!(
            "s3://firn/{prefix}?endpoint={scheme}://127.0.0.1:{}",
            self.port
        )
    }

    /// Starts it again after [`Self::kill`].
    pub fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        if let Some((certificate, key)) = &self.tls {
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        command
            .args(["--port", &format!("127.0.0.1:{}", self.port)])
            .args(["--access", "user", "--secret", "hidden-secret", "--quiet"])
            .arg("posix")
            .arg(self.directory.path().join("objects"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "versitygw does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Versitygw {
    fn drop(&mut self) {
        self.kill();
    }
}

fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("FIRN_VERSITYGW") {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let mut folders = std::env::split_paths(&path).chain(home);
    folders.find_map(|folder| {
        let program = folder.join("versitygw");
        program.is_file().then_some(program)
    })
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
