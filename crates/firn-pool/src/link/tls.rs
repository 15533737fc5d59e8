//! TLS over a connected socket, by the system's OpenSSL.

use super::Socket;
use super::readiness::wait;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    ErrorCode, HandshakeError, SslConnector, SslMethod, SslOptions, SslStream, SslVersion,
};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509VerifyResult};
use rustix::event::PollFlags;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files for TLS, in PEM form.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// Certificates of the authorities that may have signed those of the nodes; the system's if
    /// there is none.
    pub ca: Option<PathBuf>,
    /// Chain of certificates of this server, for nodes that ask for it,
    pub certificate: Option<PathBuf>,
    /// and its private key.
    pub key: Option<PathBuf>,
}

impl TlsFiles {
    /// Whether there is any.
    pub(super) fn is_any(&self) -> bool {
        self.ca.is_some() || self.certificate.is_some() || self.key.is_some()
    }
}

/// Connects by TLS. A node must have a certificate for its name or address in the list.
pub(super) struct Tls(SslConnector);

impl Tls {
    /// # Errors
    /// A file cannot be read, or does not hold what it should: a sentence for the user.
    pub(super) fn new(files: &TlsFiles) -> Result<Self, String> {
        forget_errors();
        let general = |error: ErrorStack| reason(&error);
        let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(general)?;
        let least = Some(SslVersion::TLS1_2);
        builder.set_min_proto_version(least).map_err(general)?;
        // A node must not begin a handshake inside of a read.
        builder.set_options(SslOptions::NO_RENEGOTIATION);
        if let Some(ca) = &files.ca {
            // Not in addition to the system's: whoever names authorities trusts no others.
            let mut store = X509StoreBuilder::new().map_err(general)?;
            for certificate in certificates(ca)? {
                store.add_cert(certificate).map_err(general)?;
            }
            builder.set_cert_store(store.build());
        }
        match (&files.certificate, &files.key) {
            (Some(chain), Some(key)) => {
                let mut chain = certificates(chain)?.into_iter();
                if let Some(own) = chain.next() {
                    builder.set_certificate(&own).map_err(general)?;
                }
                for authority in chain {
                    builder.add_extra_chain_cert(authority).map_err(general)?;
                }
                let private = private_key(key)?;
                // It is compared with the certificate at once.
                let wrong = |_| format!("'{}' is not the key of the certificate", key.display());
                builder.set_private_key(&private).map_err(wrong)?;
            }
            (None, None) => {}
            _ => {
                let message = "a certificate needs its private key, and a key its certificate";
                return Err(message.into());
            }
        }
        Ok(Self(builder.build()))
    }

    /// Makes a connection to `host` of a connected socket that does not block.
    pub(super) fn connect(
        &self,
        host: &str,
        stream: TcpStream,
        start: Instant,
        deadline_us: u64,
    ) -> io::Result<Box<dyn Socket>> {
        forget_errors();
        let configured = self.0.configure().map_err(io::Error::other)?;
        let mut shaking = match configured.connect(host, stream) {
            Ok(stream) => return Ok(Box::new(TlsSocket { stream, start })),
            Err(error) => error,
        };
        loop {
            let unfinished = match shaking {
                HandshakeError::WouldBlock(unfinished) => unfinished,
                HandshakeError::SetupFailure(error) => return Err(io::Error::other(error)),
                HandshakeError::Failure(failed) => {
                    let verified = failed.ssl().verify_result();
                    return Err(match verified == X509VerifyResult::OK {
                        true => io_error(failed.into_error()),
                        false => {
                            let why = verified.error_string();
                            io::Error::other(format!("its certificate is not trusted: {why}"))
                        }
                    });
                }
            };
            let wants = wanted_by(unfinished.error().code());
            let wants = wants.ok_or(ErrorKind::ConnectionAborted)?;
            if !wait(unfinished.get_ref(), wants, deadline_us, start)? {
                return Err(ErrorKind::TimedOut.into());
            }
            shaking = match unfinished.handshake() {
                Ok(stream) => return Ok(Box::new(TlsSocket { stream, start })),
                Err(error) => error,
            };
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    // Some files for the whole life of the server; this crate has no other way to files.
    #[allow(clippy::disallowed_methods)]
    std::fs::read(path).map_err(|error| format!("'{}': {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<X509>, String> {
    let parsed = X509::stack_from_pem(&read(path)?).unwrap_or_default();
    match parsed.is_empty() {
        true => Err(format!("'{}' has no certificate (PEM)", path.display())),
        false => Ok(parsed),
    }
}

/// Reads a private key, which nobody but its owner may read or write.
fn private_key(path: &Path) -> Result<PKey<Private>, String> {
    #[allow(clippy::disallowed_methods)]
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|error| format!("'{}': {error}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "'{}': others than its owner may use it (mode {mode:03o}); chmod 600 it",
            path.display()
        ));
    }
    // Without the callback OpenSSL asks the terminal for a password.
    let parsed = PKey::private_key_from_pem_callback(&read(path)?, |_| Ok(0));
    parsed.map_err(|_| {
        format!(
            "'{}' has no private key (PEM, without a password)",
            path.display()
        )
    })
}

/// The last reason of an error, as OpenSSL names it.
fn reason(error: &ErrorStack) -> String {
    let last = error.errors().last();
    let reason = last.and_then(|error| error.reason());
    reason
        .unwrap_or("the system's OpenSSL refuses it")
        .to_owned()
}

/// OpenSSL keeps a list of errors for each thread, and takes one that another call has left for one
/// of its own. The threads of a server use it for their clients, too.
fn forget_errors() {
    drop(ErrorStack::get());
}

/// The event that lets a call go on which could not.
fn wanted_by(code: ErrorCode) -> Option<PollFlags> {
    match code {
        ErrorCode::WANT_READ => Some(PollFlags::IN),
        ErrorCode::WANT_WRITE => Some(PollFlags::OUT),
        _ => None,
    }
}

struct TlsSocket {
    stream: SslStream<TcpStream>,
    start: Instant,
}

fn io_error(error: openssl::ssl::Error) -> io::Error {
    if error.code() == ErrorCode::ZERO_RETURN {
        return ErrorKind::UnexpectedEof.into();
    }
    match error.ssl_error().map(reason) {
        Some(reason) => io::Error::other(format!("TLS: {reason}")),
        None => error.into_io_error().unwrap_or_else(io::Error::other),
    }
}

impl Socket for TlsSocket {
    fn wants_pieces(&self) -> bool {
        true
    }

    fn write_all(&mut self, mut bytes: &[u8], deadline_us: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            forget_errors();
            match self.stream.ssl_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => match wanted_by(error.code()) {
                    Some(wants) => {
                        if !wait(self.stream.get_ref(), wants, deadline_us, self.start)? {
                            return Err(ErrorKind::TimedOut.into());
                        }
                    }
                    None => return Err(io_error(error)),
                },
            }
        }
        Ok(())
    }

    fn try_read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        forget_errors();
        match self.stream.ssl_read(into) {
            Ok(0) if !into.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(Some(count)),
            Err(error) if wanted_by(error.code()).is_some() => Ok(None),
            Err(error) => Err(io_error(error)),
        }
    }

    fn wait_readable(&mut self, deadline_us: u64) -> io::Result<bool> {
        // Decrypted bytes that wait in OpenSSL do not make the socket readable.
        if self.stream.ssl().pending() > 0 {
            return Ok(true);
        }
        wait(
            self.stream.get_ref(),
            PollFlags::IN,
            deadline_us,
            self.start,
        )
    }
}
