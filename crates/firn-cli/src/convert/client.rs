//! The session in which a conversion works. The client program ends with the first error of the
//! server, so the next statement opens a new session.
//!
//! A session that changes tables holds an advisory lock of the server. If a conversion is killed,
//! the server still carries out its last statement, and `information_schema` lacks a table while
//! the server renames it: a plan that was made then would be wrong. The server releases the lock
//! when that session ends.

use crate::args::Convert;
use crate::server::Server;
use firn::base::{Error, ErrorKind, Result};

/// The name of the advisory lock.
const LOCK: &str = "firn convert";

/// The shortest wait for the lock. The holder may be the session of a conversion that has ended,
/// whose end the server notices soon, but not at once.
const LOCK_SECONDS_MIN: u32 = 5;

/// The shortest wait for the lock if this conversion has held it. The holder is most likely its
/// previous session, which ends even if the server is slow.
const OWN_LOCK_SECONDS_MIN: u32 = 60;

/// A connection that survives errors of statements.
pub struct Client<'a> {
    args: &'a Convert,
    server: Option<Server>,
    /// Whether a session of this client has held the lock.
    locked: bool,
}

impl<'a> Client<'a> {
    /// Connects. Unless nothing is to be changed, waits until no other conversion works on the
    /// server.
    ///
    /// # Errors
    /// Those of [`Server::connect`]; `Busy` if another conversion works on the server for longer
    /// than the wait for locks.
    pub fn new(args: &'a Convert) -> Result<Self> {
        let mut client = Self {
            args,
            server: None,
            locked: false,
        };
        client.server()?;
        Ok(client)
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// The server's error, as `Io`; the next call connects again.
    pub fn ask(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        let answer = self.server()?.ask(statement);
        if answer.is_err() {
            self.server = None;
        }
        answer
    }

    fn server(&mut self) -> Result<&mut Server> {
        if self.server.is_none() {
            let mut server = Server::connect(&self.args.server)?;
            // Literals are quoted for this sql_mode. Values that a stricter mode would refuse are
            // in the tables already and must stay as they are.
            server.ask("SET SESSION sql_mode = '', foreign_key_checks = 0, unique_checks = 1")?;
            server.ask("SET SESSION system_versioning_alter_history = KEEP")?;
            let wait = self.args.lock_wait;
            server.ask(&format!("SET SESSION lock_wait_timeout = {wait}"))?;
            if self.args.local {
                server.ask("SET SESSION sql_log_bin = 0")?;
            }
            if !self.args.dry_run {
                let least = match self.locked {
                    true => OWN_LOCK_SECONDS_MIN,
                    false => LOCK_SECONDS_MIN,
                };
                lock(&mut server, wait.max(least))?;
                self.locked = true;
            }
            self.server = Some(server);
        }
        Ok(self.server.as_mut().expect("it was just made"))
    }
}

/// Waits until no other session works on a conversion, for `seconds_max` at most.
fn lock(server: &mut Server, seconds_max: u32) -> Result<()> {
    if server.ask(&format!("SELECT GET_LOCK('{LOCK}', {seconds_max})"))? == [["1"]] {
        return Ok(());
    }
    let holder = server.ask(&format!("SELECT IS_USED_LOCK('{LOCK}')"))?;
    let holder = holder.into_iter().flatten().next().unwrap_or_default();
    let message = format!(
        "connection {holder} of the server still works on a conversion; run again when it is done"
    );
    Err(Error::new(ErrorKind::Busy, message))
}
