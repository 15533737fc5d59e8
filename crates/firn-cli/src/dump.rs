//! Shows the content of one file (`firn dump`).

mod blob;
pub(crate) mod manifest;
mod sst;
mod wal;

use crate::Outcome;
use crate::args::Dump;
use crate::output::Output;
use firn::base::{Error, Result};
use std::path::Path;

/// Shows a file.
pub fn run(args: &Dump, out: &Output) -> Result<Outcome> {
    match args {
        Dump::Blob(args) => blob::run(args, out),
        Dump::Sst(args) => sst::run(args, out),
        Dump::Wal(args) => wal::run(args, out),
        Dump::Manifest(args) => manifest::run(args, out),
    }
}

/// Splits the path of a file into its directory and its name.
fn split(file: &Path) -> Result<(&Path, &str)> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or_else(|| Error::invalid(format_args!("{} names no file", file.display())))?;
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    Ok((dir, name))
}
