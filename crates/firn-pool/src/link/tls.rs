//! TLS over a connected socket, by the system's OpenSSL.

use super::Socket;
use super::system::wait;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, HandshakeError, SslConnector, SslFiletype, SslMethod, SslStream, SslVersion,
};
use rustix::event::PollFlags;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::PathBuf;
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

/// Connects by TLS. A node must have a certificate for its name or address in the list.
pub(super) struct Tls(SslConnector);

impl Tls {
    /// # Errors
    /// A file cannot be read, or does not hold what it should: a sentence for the user.
    pub(super) fn new(files: &TlsFiles) -> Result<Self, String> {
        let failed = |what: &str, path: &PathBuf| {
            let (what, path) = (what.to_owned(), path.display().to_string());
            move |error: ErrorStack| format!("{what} '{path}': {}", reason(&error))
        };
        let general = |error: ErrorStack| format!("TLS: {}", reason(&error));
        let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(general)?;
        let least = Some(SslVersion::TLS1_2);
        builder.set_min_proto_version(least).map_err(general)?;
        if let Some(ca) = &files.ca {
            let failed = failed("authorities", ca);
            // Not in addition to the system's: whoever names authorities trusts no others.
            let store = openssl::x509::store::X509StoreBuilder::new().map_err(general)?;
            builder.set_cert_store(store.build());
            builder.set_ca_file(ca).map_err(failed)?;
        }
        match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => {
                let unusable = failed("certificate", certificate);
                builder
                    .set_certificate_chain_file(certificate)
                    .map_err(unusable)?;
                builder
                    .set_private_key_file(key, SslFiletype::PEM)
                    .map_err(failed("private key", key))?;
                builder
                    .check_private_key()
                    .map_err(failed("no key of the certificate", key))?;
            }
            (None, None) => {}
            _ => {
                return Err(
                    "a certificate needs its private key, and the key its certificate".into(),
                );
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
                    return Err(match verified == openssl::x509::X509VerifyResult::OK {
                        true => io::Error::other(failed.into_error()),
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

/// The first reason of an error, as OpenSSL names it.
fn reason(error: &ErrorStack) -> String {
    let first = error.errors().first();
    let reason = first.and_then(|error| error.reason());
    reason
        .unwrap_or("the system's OpenSSL refuses it")
        .to_owned()
}

/// OpenSSL keeps a list of errors for each thread, and takes one that another call has left for one
/// of its own. The threads of a server use it for their clients, too.
fn forget_errors() {
    drop(ErrorStack::get());
}

/// What a call that could not go on waits for.
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
    match error.code() {
        ErrorCode::ZERO_RETURN => ErrorKind::UnexpectedEof.into(),
        _ => error.into_io_error().unwrap_or_else(io::Error::other),
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
