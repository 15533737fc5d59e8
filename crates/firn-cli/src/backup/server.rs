//! A connection to the running server through its own client program, which reads option files and
//! knows every way to authenticate.

use super::format::Position;
use crate::args::Client;
use firn::base::{Error, ErrorKind, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Options of the client program that override those option file settings which would change
/// statements, results, or the behaviour after an error.
const UNCHANGED: [&str; 13] = [
    "--skip-force",
    "--skip-raw",
    "--skip-table",
    "--skip-vertical",
    "--skip-xml",
    "--skip-html",
    "--skip-show-warnings",
    "--skip-binary-mode",
    "--skip-named-commands",
    "--skip-tee",
    "--skip-pager",
    "--delimiter=;",
    "--init-command=DO 1",
];

/// One session of the server. When it is dropped, the connection ends, and with it a backup stage
/// that the session has begun.
pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    questions: u64,
}

impl Server {
    /// Starts the client program and connects.
    ///
    /// # Errors
    /// `NotFound` without the client program; what the program says when it cannot connect.
    pub fn connect(client: &Client) -> Result<Self> {
        let mut command = Command::new(&client.client);
        // The client program accepts an option file only as its first argument.
        if let Some(file) = &client.defaults_file {
            command.arg(format!("--defaults-file={}", file.display()));
        }
        let options = [
            ("host", client.host.clone()),
            ("user", client.user.clone()),
            (
                "socket",
                client.socket.as_ref().map(|s| s.display().to_string()),
            ),
            ("port", client.port.map(|port| port.to_string())),
        ];
        for (name, value) in options {
            if let Some(value) = value {
                command.arg(format!("--{name}={value}"));
            }
        }
        let child = command
            .args([
                "--batch",
                "--skip-column-names",
                "--unbuffered",
                "--skip-reconnect",
            ])
            .args(["--default-character-set=utf8mb4"])
            .args(UNCHANGED)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child =
            child.map_err(|e| Error::io(&e, format_args!("start {}", client.client.display())))?;
        let stdout = child.stdout.take().expect("it is a pipe");
        let stdin = child.stdin.take();
        let mut server = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
            questions: 0,
        };
        if server.ask("SELECT 1")? != [["1"]] {
            let what =
                "what the client program prints is changed by an option file, as 'verbose' does";
            return Err(Error::unsupported(what));
        }
        Ok(server)
    }

    /// Runs a statement. Returns its rows; a NULL is the word `NULL`.
    ///
    /// # Errors
    /// The server's error, as `Io`. It ends the session.
    pub fn ask(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
        self.questions += 1;
        let end = format!("firn-end-{}-errors-0", self.questions);
        // The second statement marks the end of the rows. It also shows an error after which the
        // client program went on.
        let text = format!(
            "{statement};\nSELECT CONCAT('firn-end-{}-errors-', @@error_count);\n",
            self.questions
        );
        let written = match &mut self.stdin {
            Some(stdin) => stdin
                .write_all(text.as_bytes())
                .and_then(|()| stdin.flush()),
            None => Ok(()),
        };
        let mut rows = Vec::new();
        let mut line = String::new();
        while written.is_ok() {
            line.clear();
            let read = self.stdout.read_line(&mut line);
            match read.map_err(|e| Error::io(&e, "read from the client program"))? {
                0 => break,
                // This is the mark of the end, but it reports an error.
                _ if line.starts_with(&end[..end.len() - 1]) && !line.ends_with("-0\n") => break,
                _ if line.trim_end_matches('\n') == end => return Ok(rows),
                _ => {
                    let row = line.trim_end_matches('\n').split('\t');
                    rows.push(row.map(unescape).collect());
                }
            }
        }
        Err(self.failure(statement))
    }

    /// Moves the session to a stage of `BACKUP STAGE`.
    ///
    /// # Errors
    /// `Busy` if a statement held the stage up for longer than `lock_wait_timeout`.
    pub fn backup_stage(&mut self, stage: &str) -> Result<()> {
        let entered = self.ask(&format!("BACKUP STAGE {stage}")).map(drop);
        entered.map_err(|error| match error.to_string().contains("ERROR 1205") {
            true => {
                let what =
                    "another backup, a long statement or ALTER TABLE goes on; see --lock-wait";
                Error::new(ErrorKind::Busy, format!("{error}: {what}"))
            }
            false => error,
        })
    }

    /// The first field of the first row.
    pub fn ask_one(&mut self, statement: &str) -> Result<String> {
        let mut rows = self.ask(statement)?;
        let first = rows.first_mut().and_then(|row| row.first_mut());
        Ok(first.map(std::mem::take).unwrap_or_default())
    }

    /// The positions of the server's binary logs.
    pub fn position(&mut self) -> Result<Position> {
        let mut position = Position::default();
        if let Some([file, pos, ..]) = self.ask("SHOW MASTER STATUS")?.first().map(Vec::as_slice) {
            position.binlog_file.clone_from(file);
            position.binlog_pos = pos.parse().unwrap_or(0);
        }
        position.gtid_binlog_pos = self.ask_one("SELECT @@global.gtid_binlog_pos")?;
        position.gtid_slave_pos = self.ask_one("SELECT @@global.gtid_slave_pos")?;
        // The two fields are Relay_Master_Log_File and Exec_Master_Log_Pos.
        if let Some(row) = self.ask("SHOW SLAVE STATUS")?.first()
            && let (Some(file), Some(pos)) = (row.get(9), row.get(21))
        {
            position.source_file.clone_from(file);
            position.source_pos = pos.parse().unwrap_or(0);
        }
        Ok(position)
    }

    fn failure(&mut self, statement: &str) -> Error {
        self.stdin = None;
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let kind = ErrorKind::Io { os_errno: 0 };
        Error::new(kind, format!("{statement}: {}", said.trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input ends the client program.
        self.stdin = None;
        let _ = self.child.wait();
    }
}

/// Undoes the escapes with which the client program writes a field.
fn unescape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        let real = match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('0') => '\0',
                other => other.unwrap_or('\\'),
            },
            c => c,
        };
        out.push(real);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn fields_are_read_as_they_were() {
        for (written, field) in [
            ("plain", "plain"),
            (r"two\nlines\tand a tab", "two\nlines\tand a tab"),
            (r"a\\b\0", "a\\b\0"),
            ("end\\", "end\\"),
        ] {
            assert_eq!(unescape(written), field);
        }
    }
}
