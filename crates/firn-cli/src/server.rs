//! A connection to the running server through its own client program, which reads option files and
//! knows every way to authenticate.

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

/// One session of the server. Dropping it ends the connection.
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
    /// `NotFound` without the client program; `Io` with the client program's message if it cannot
    /// connect; `Unsupported` if an option file changes the form of the results.
    pub fn connect(client: &Client) -> Result<Self> {
        let mut command = Command::new(&client.client);
        let child = command
            .args(client.options())
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
        // Append a second statement, whose answer marks the end of the rows. The answer also has
        // the number of errors, because the client program may have gone on after an error.
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
                // The mark of the end shows at least one error.
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

    /// The first field of the first row.
    pub fn ask_one(&mut self, statement: &str) -> Result<String> {
        let mut rows = self.ask(statement)?;
        let first = rows.first_mut().and_then(|row| row.first_mut());
        Ok(first.map(std::mem::take).unwrap_or_default())
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

/// An identifier in backticks.
pub fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A string literal. The session's sql_mode must not have NO_BACKSLASH_ESCAPES.
pub fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A field as the client program writes it.
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
    use super::{quoted_name, quoted_text, unescape};

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

    #[test]
    fn names_and_texts_end_where_they_should() {
        assert_eq!(quoted_name("a`b"), "`a``b`");
        assert_eq!(quoted_text(r"it's a \"), r"'it\'s a \\'");
    }
}
