//! The session in which a conversion works. The client program ends with the first error of the
//! server, so the next statement opens a new session.

use crate::args::Convert;
use crate::server::Server;
use firn::base::Result;

/// A connection that survives errors of statements.
pub struct Client<'a> {
    args: &'a Convert,
    server: Option<Server>,
}

impl<'a> Client<'a> {
    /// Connects.
    ///
    /// # Errors
    /// Those of [`Server::connect`].
    pub fn new(args: &'a Convert) -> Result<Self> {
        let mut client = Self { args, server: None };
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
            self.server = Some(server);
        }
        Ok(self.server.as_mut().expect("it was just made"))
    }
}
