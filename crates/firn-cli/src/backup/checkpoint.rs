//! The checkpoint that a backup is taken from. It belongs to that backup alone, and is removed when
//! the backup ends, for any reason.

use firn::base::{Error, Result};
use firn::env::{Env, PosixEnv};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The directory that a signal removes before it ends the program.
static ON_SIGNAL: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The checkpoint of a backup. It is removed when this value is dropped, and by signals that end
/// the program.
pub struct Checkpoint {
    dir: PathBuf,
}

impl Checkpoint {
    /// The owner of the checkpoint that the server is about to make in `dir`.
    pub fn at(dir: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io(&e, "wait for signals");
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
        *ON_SIGNAL.lock().unwrap_or_else(|e| e.into_inner()) = Some(dir.to_owned());
        let wait = move || {
            for signal in signals.forever() {
                let dir = ON_SIGNAL.lock().unwrap_or_else(|e| e.into_inner());
                if let Some(dir) = &*dir {
                    // A failure is ignored: the next backup removes what is left of the checkpoint.
                    let _ = fs::remove_dir_all(dir);
                }
                let _ = emulate_default_handler(signal);
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).map_err(failed)?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        *ON_SIGNAL.lock().unwrap_or_else(|e| e.into_inner()) = None;
        match fs::remove_dir_all(&self.dir) {
            // The server has not made the checkpoint.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => eprintln!("firn: the checkpoint {} stays: {error}", self.dir.display()),
            Ok(()) => {}
        }
    }
}

const PREFIX: &str = "checkpoint-";

/// The directory of a backup's checkpoint. Its name has the process id, since a backup into another
/// target may have the same id.
pub fn checkpoint_of(parent: &Path, id: &str) -> PathBuf {
    parent.join(format!("{PREFIX}{id}-{}", std::process::id()))
}

/// Whether a name comes from [`checkpoint_of`], or is that of a checkpoint that the server is still
/// making. Other directories must not be removed.
fn is_checkpoint(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX).unwrap_or_default();
    let id = id.strip_suffix(".tmp").unwrap_or(id);
    let (id, process) = id.split_once('-').unwrap_or_default();
    let (time, number) = id.split_once('_').unwrap_or((id, "2"));
    let numbers = [process, number].map(|digits| digits.parse::<u32>().is_ok());
    let pattern = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    time.len() == 16 && time.bytes().enumerate().all(pattern) && numbers == [true, true]
}

/// Removes the checkpoints in `parent` of backups that were killed, which show by their free locks.
/// Call it while no other backup of this server can make a checkpoint. Returns remarks for the
/// user.
pub fn remove_left_behind(parent: &Path) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| Error::io(&e, parent.display());
    let mut notes = Vec::new();
    for entry in fs::read_dir(parent).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !is_checkpoint(&name) || !path.is_dir() {
            continue;
        }
        // Another backup holds the lock and sends files from this checkpoint.
        let Ok(_lock) = PosixEnv::new().lock(&path.join("LOCK")) else {
            continue;
        };
        notes.push(match fs::remove_dir_all(&path) {
            Ok(()) => format!("removed {}, which a backup had left behind", path.display()),
            Err(error) => format!(
                "{}, left behind by a backup, stays: {error}",
                path.display()
            ),
        });
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_uses_goes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "checkpoint-20260131T235959Z-12",
            "checkpoint-20260131T235959Z_002-7",
            "checkpoint-20260131T235959Z-12.tmp",
            "checkpoint-20260131T235958Z-12",
            "checkpoint-monday",
            "checkpoint-20260131T235959Z",
            "20260131T235959Z-12",
        ];
        for name in names {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("CURRENT"), b"").unwrap();
        }
        let used = dir.path().join(names[3]);
        let _lock = PosixEnv::new().lock(&used.join("LOCK")).unwrap();
        assert_eq!(remove_left_behind(dir.path()).unwrap().len(), 3);
        let there = |name: &&&str| dir.path().join(name).exists();
        assert_eq!(names.iter().filter(there).count(), 4);
        assert!(used.join("CURRENT").exists());
    }
}
