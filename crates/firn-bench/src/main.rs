//! Benchmarks of Firn: `firn-bench kv|budgets|steady`. See `docs/benchmarks.md`.

#![allow(clippy::disallowed_methods)] // The real clock and the real files are what is measured.

mod allocs;
mod budgets;
mod capi;
mod config;
mod data;
mod disk_probe;
mod engine;
mod kv;
mod load_driver;
mod measure;
mod steady;
mod svg;

#[global_allocator]
static ALLOCATOR: allocs::Counting = allocs::Counting;

use config::Config;
use engine::Result;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["kv"] => kv::run(Config::from_env()?),
        // `kv` starts this command in a child process, for one line on one engine.
        ["child", line, engine, dir] => {
            kv::run_child(&Config::from_env()?, line, engine, Path::new(dir))
        }
        ["budgets"] => budgets::run(),
        ["steady"] => steady::run(Config::from_env()?),
        _ => Err("usage: firn-bench kv|budgets|steady".into()),
    }
}
