//! `firn-history [--json] FILE…` judges the histories in the files (see the library). `--json`
//! prints each verdict as one line of JSON. Exits with 1 if a history has findings, with 2 if the
//! arguments are wrong or a file cannot be read.

use firn_history::{History, check};
use std::fs::OpenOptions;
use std::io::BufReader;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let before = files.len();
    files.retain(|word| word != "--json");
    let json = files.len() < before;
    if files.is_empty() || files.iter().any(|file| file.starts_with('-')) {
        eprintln!("usage: firn-history [--json] FILE…");
        return ExitCode::from(2);
    }
    let mut found = false;
    for name in files {
        let opened = OpenOptions::new().read(true).open(&name);
        let history = opened.and_then(|file| History::read(BufReader::new(file)));
        let history = match history {
            Ok(history) => history,
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::from(2);
            }
        };
        let verdict = check(&history);
        found |= !verdict.findings.is_empty();
        match json {
            true => println!("{}", serde_json::to_string(&verdict).expect("plain data")),
            false => println!("{name}: {verdict}"),
        }
    }
    ExitCode::from(u8::from(found))
}
