//! Prints results: text for people or JSON for programs, and progress on standard error.

use comfy_table::{CellAlignment, Table, presets};
use firn::base::{Error, ErrorKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{ErrorKind as IoErrorKind, IsTerminal, Write};

/// Prints results and errors of a command in the form that the user chose.
pub struct Output {
    json: bool,
}

#[derive(Serialize)]
struct Failure<'a> {
    error: &'a str,
    kind: &'static str,
    file: Option<&'a str>,
    offset: Option<u64>,
}

impl Output {
    /// An output of text, or with `json` of JSON.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints `report` as JSON, or as the text that `text` makes of it.
    pub fn print<R: Serialize>(&self, report: &R, text: impl FnOnce(&R) -> String) {
        let printed = match self.json {
            true => serde_json::to_string_pretty(report).expect("reports have string keys") + "\n",
            false => text(report),
        };
        print(&printed);
    }

    /// Prints the error of a command to standard error.
    pub fn error(&self, error: &Error) {
        if !self.json {
            eprintln!("firn: {error}");
            return;
        }
        let (file, offset) = match error.kind() {
            ErrorKind::Corruption { file, offset } => (Some(file.as_str()), Some(*offset)),
            _ => (None, None),
        };
        let failure = Failure {
            error: error.message(),
            kind: error.kind().words(),
            file,
            offset,
        };
        let json = serde_json::to_string(&failure).expect("reports have string keys");
        eprintln!("{json}");
    }

    /// Prints a line on standard error that tells how far the command is. Prints nothing with
    /// `--json`.
    pub fn progress_line(&self, line: &str) {
        if !self.json {
            eprintln!("{line}");
        }
    }

    fn target(&self) -> ProgressDrawTarget {
        match !self.json && std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        }
    }

    /// A spinner, if standard error is a terminal.
    pub fn spinner(&self, what: &'static str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(None, self.target());
        bar.set_message(what);
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        bar
    }

    /// A progress bar over `total` bytes, if standard error is a terminal.
    pub fn progress(&self, what: &'static str, total: u64) -> ProgressBar {
        let style = ProgressStyle::with_template(
            "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        )
        .expect("a template of known fields");
        let bar = ProgressBar::with_draw_target(Some(total), self.target()).with_style(style);
        bar.set_message(what);
        bar
    }
}

/// Writes to standard output. If the reader has closed it (`firn … | head`), that is no error.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
            eprintln!("firn: cannot write the result: {error}");
            std::process::exit(4);
        }
        _ => {}
    }
}

/// Formats a table with these headings. All columns but the first `left` are aligned as numbers.
pub fn table(headings: &[&str], left: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(headings.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.to_string();
    let trimmed = lines.lines().map(|line| format!("{}\n", line.trim_end()));
    trimmed.collect()
}

/// Formats a number of bytes with a unit such as KiB.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match unit {
        "B" => format!("{count} B"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
