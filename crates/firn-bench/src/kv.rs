//! Measures engines side by side. Each line runs in a process of its own.

mod chart;
mod child;
mod line;
mod outcome;
mod report;

pub use child::run as run_child;

use crate::config::Config;
use crate::engine::{Error, Result, title};
use line::{Line, Needs};
use outcome::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// State of an engine's main database. Most lines of a run use this database, one after the other.
/// Before a line that needs a loaded or a compacted database, the run brings the main database into
/// that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum DatabaseState {
    Missing,
    Loaded,
    Settled,
}

struct Comparison {
    config: Config,
    states: BTreeMap<String, DatabaseState>,
    raw: fs::File,
    outcomes: Vec<Outcome>,
}

/// Measures every line that the settings name, on one engine after the other, and prints a report.
pub fn run(config: Config) -> Result<()> {
    let began = Instant::now();
    let lines = line::chosen(&config)?;
    fs::create_dir_all(&config.out)?;
    let raw = fs::File::create(config.out.join("results.jsonl"))?;
    let states = config
        .engines
        .iter()
        .map(|engine| (engine.clone(), kept_state(&config, engine)))
        .collect();
    let mut run = Comparison {
        config,
        states,
        raw,
        outcomes: Vec::new(),
    };
    for line in &lines {
        for engine in run.config.engines.clone() {
            if line.leaves_out(&engine) {
                continue;
            }
            run.prepare(line, &engine)?;
            eprintln!("==> {}: {}", line.title, title(&engine));
            if let Some(outcome) = run.measure(line, &engine)? {
                eprintln!("      {}", report::in_short(&outcome));
                run.outcomes.push(outcome);
            }
        }
        // Write after each line, so that a run that is cut short leaves the results it has.
        report::write(&run.config, &lines, &run.outcomes, began.elapsed())?;
    }
    println!(
        "{}",
        report::table(&run.config, &lines, &run.outcomes, began.elapsed())
    );
    eprintln!("==> results: {}", run.config.out.display());
    if !run.config.keep {
        let _ = fs::remove_dir_all(&run.config.data);
    }
    Ok(())
}

impl Comparison {
    /// Brings the engine's main database into the state that the line needs.
    fn prepare(&mut self, line: &Line, engine: &str) -> Result<()> {
        let needed = match line.needs {
            Needs::Nothing => return Ok(()),
            Needs::Loaded => DatabaseState::Loaded,
            Needs::Settled => DatabaseState::Settled,
        };
        if self.states[engine] == DatabaseState::Missing {
            eprintln!("==> preparing: load of {}", title(engine));
            self.measure(line::named("load-random")?, engine)?;
        }
        if self.states[engine] < needed {
            eprintln!("==> preparing: full compaction of {}", title(engine));
            self.measure(line::named("compact")?, engine)?;
        }
        Ok(())
    }

    /// Runs the line in a child process. `None` if the engine could not run it.
    fn measure(&mut self, line: &Line, engine: &str) -> Result<Option<Outcome>> {
        let dir = self.dir_of(line, engine);
        if line.needs == Needs::Nothing && dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let mark = self.config.data.join(engine).join("state");
        if line.is_main() {
            // Remove the file `state` first. If the run or its child is stopped in the middle of
            // the line, the next run with `KEEP=1` finds no such file and loads the main database
            // anew, instead of using one in an unknown state.
            let _ = fs::remove_file(&mark);
        }
        fs::create_dir_all(&dir)?;
        let output = Command::new(std::env::current_exe()?)
            .args(["child", line.name, engine])
            .arg(&dir)
            .stdout(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        if !output.status.success() {
            eprintln!("      {} FAILED: {}", line.name, output.status);
            if line.is_main() {
                self.states
                    .insert(engine.to_owned(), DatabaseState::Missing);
            }
            return Ok(None);
        }
        let text = String::from_utf8(output.stdout)?;
        let outcome: Outcome = serde_json::from_str(text.trim())?;
        writeln!(self.raw, "{}", text.trim())?;
        if line.is_main() {
            let state = if line.compacts_fully {
                DatabaseState::Settled
            } else {
                DatabaseState::Loaded
            };
            let left = if line.is_read_only() {
                self.states[engine]
            } else {
                state
            };
            self.states.insert(engine.to_owned(), left);
            fs::write(mark, format!("{} {left:?}", self.config.keys))?;
        } else {
            fs::remove_dir_all(&dir)?;
        }
        Ok(Some(outcome))
    }

    fn dir_of(&self, line: &Line, engine: &str) -> PathBuf {
        let folder = if line.is_main() { "main" } else { "apart" };
        self.config.data.join(engine).join(folder)
    }
}

/// State of the database that an earlier run with `KEEP=1` has left.
fn kept_state(config: &Config, engine: &str) -> DatabaseState {
    let mark = config.data.join(engine).join("state");
    let text = fs::read_to_string(mark).unwrap_or_default();
    match text.split_once(' ') {
        Some((keys, state)) if config.keep && keys == config.keys.to_string() => match state {
            "Settled" => DatabaseState::Settled,
            _ => DatabaseState::Loaded,
        },
        _ => DatabaseState::Missing,
    }
}

/// An error for a name that does not exist.
fn unknown(what: &str, name: &str, known: &[&str]) -> Error {
    format!(
        "no {what} is called {name} (there are: {})",
        known.join(" ")
    )
    .into()
}
