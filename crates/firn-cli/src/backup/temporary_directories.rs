//! The directories that a backup is taken from: the checkpoint, and the copy of `mariadb-backup`.
//! They belong to that backup alone, and are removed when the backup ends, for any reason.

use firn::base::{Error, Result};
use firn::env::{Env, PosixEnv};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal, test_kill_process,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

/// The work for a signal that ends this program: first it ends the child program, then it removes
/// the directories.
#[derive(Default)]
struct OnSignal {
    directories: Vec<PathBuf>,
    child: Option<Pid>,
    /// The thread that waits for signals runs.
    watched: bool,
}

/// After `SIGTERM`, a child has this many polls at the interval [`TERM_POLL`] to end: five seconds.
/// Then it is killed.
const TERM_POLLS: u32 = 250;
const TERM_POLL: Duration = Duration::from_millis(20);

static ON_SIGNAL: Mutex<OnSignal> = Mutex::new(OnSignal {
    directories: Vec::new(),
    child: None,
    watched: false,
});

fn on_signal() -> MutexGuard<'static, OnSignal> {
    ON_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of a backup. It is removed when this value is dropped, and by signals that end the
/// program.
pub struct TemporaryDirectory {
    /// Path of the directory.
    pub path: PathBuf,
}

impl TemporaryDirectory {
    /// The owner of a directory that is about to be made at `path`.
    pub fn at(path: &Path) -> Result<Self> {
        let mut state = on_signal();
        if !state.watched {
            watch()?;
            state.watched = true;
        }
        state.directories.push(path.to_owned());
        let path = path.to_owned();
        Ok(Self { path })
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        on_signal().directories.retain(|other| *other != self.path);
        match fs::remove_dir_all(&self.path) {
            // It was never made.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => eprintln!("firn: {} stays: {error}", self.path.display()),
            Ok(()) => {}
        }
    }
}

/// Starts a program that ends with this one. A signal that ends this program first ends the child;
/// after `SIGKILL`, or whatever else ends this program, the kernel kills the child. So no child
/// writes into a directory that nobody owns.
///
/// The kernel kills the child when the *thread* ends that has called this function, so that thread
/// must wait for the child and then call [`child_ended`].
pub fn start(command: &mut Command) -> io::Result<Child> {
    let parent = getpid();
    let die_with_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before that call.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: the closure runs in the new process, where only its one thread exists, before the
    // program is loaded. It makes two system calls, does not allocate, and takes no lock.
    unsafe { command.pre_exec(die_with_parent) };
    // A signal that comes now waits for this lock, and then finds the child.
    let mut state = on_signal();
    let child = command.spawn()?;
    state.child = Some(Pid::from_child(&child));
    Ok(child)
}

/// The child of [`start`] has ended.
pub fn child_ended() {
    on_signal().child = None;
}

/// Ends a child process, so that it no longer writes into a directory that is about to be removed.
/// Does nothing if the process has ended already.
fn end(child: Pid) {
    let _ = kill_process(child, Signal::TERM);
    for _ in 0..TERM_POLLS {
        if test_kill_process(child).is_err() || is_zombie(child) {
            return;
        }
        std::thread::sleep(TERM_POLL);
    }
    let _ = kill_process(child, Signal::KILL);
    std::thread::sleep(TERM_POLL);
}

/// Whether the process has ended and waits for its parent.
fn is_zombie(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap_or_default();
    // The name in parentheses may have any characters.
    text.rsplit_once(')')
        .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

fn watch() -> Result<()> {
    let failed = |e: std::io::Error| Error::io(&e, "wait for signals");
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(failed)?;
    let wait = move || {
        for signal in signals.forever() {
            let state = on_signal();
            if let Some(child) = state.child {
                end(child);
            }
            for path in &state.directories {
                // A failure is ignored: the next backup removes what is left.
                let _ = fs::remove_dir_all(path);
            }
            let _ = emulate_default_handler(signal);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(wait).map(drop).map_err(failed)
}

const PREFIX: &str = "checkpoint-";

/// End of the name of a directory for the copy of `mariadb-backup`.
const COPY: &str = ".copy";

/// The directory of a backup's checkpoint. The name of the directory contains the process id, since
/// a backup into another target may have the same backup id.
pub fn checkpoint_of(parent: &Path, id: &str) -> PathBuf {
    parent.join(format!("{PREFIX}{id}-{}", std::process::id()))
}

/// The directory for a backup's copy of the rest of the server.
pub fn copy_of(parent: &Path, id: &str) -> PathBuf {
    let mut name = checkpoint_of(parent, id).into_os_string();
    name.push(COPY);
    name.into()
}

/// The process id in a name that comes from [`checkpoint_of`] or [`copy_of`], or that the server
/// gives to a checkpoint while it makes it. `None` for all other names; directories with such names
/// must not be removed.
fn process_of(name: &str) -> Option<u32> {
    let id = name.strip_prefix(PREFIX)?;
    let endings = [".tmp", COPY];
    let id = endings
        .iter()
        .find_map(|end| id.strip_suffix(end))
        .unwrap_or(id);
    let (id, process) = id.split_once('-')?;
    let (time, number) = id.split_once('_').unwrap_or((id, "2"));
    let process = process.parse().ok()?;
    number.parse::<u32>().ok()?;
    let pattern = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    (time.len() == 16 && time.bytes().enumerate().all(pattern)).then_some(process)
}

/// Whether another running process has this id. That process may be a later one than the process
/// that made the directory; then a later backup removes the directory. This process itself does not
/// count: it has made no directory yet.
fn lives(process: u32) -> bool {
    process != std::process::id() && Path::new("/proc").join(process.to_string()).exists()
}

/// Removes the directories in `parent` that killed backups have left behind: the process in the
/// name no longer runs, and nobody holds the lock. Returns remarks for the user.
///
/// A new checkpoint has no lock for a moment, in which only the process in its name protects it. So
/// call this, if possible, while no other backup of this server can make a checkpoint.
pub fn remove_left_behind(parent: &Path) -> Result<Vec<String>> {
    let failed = |e: std::io::Error| Error::io(&e, parent.display());
    let mut notes = Vec::new();
    for entry in fs::read_dir(parent).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let process = process_of(&name);
        if process.is_none_or(lives) || !path.is_dir() {
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
            // No process has such a number.
            "checkpoint-20260131T235959Z-9000012",
            "checkpoint-20260131T235959Z_002-9000007",
            "checkpoint-20260131T235959Z-9000012.tmp",
            "checkpoint-20260131T235959Z-9000012.copy",
            // Its lock is held.
            "checkpoint-20260131T235958Z-9000012",
            // Its process lives.
            "checkpoint-20260131T235958Z-1",
            "checkpoint-monday",
            "checkpoint-20260131T235959Z",
            "20260131T235959Z-12",
        ];
        for name in names {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("CURRENT"), b"").unwrap();
        }
        let used = dir.path().join(names[4]);
        let _lock = PosixEnv::new().lock(&used.join("LOCK")).unwrap();
        assert_eq!(remove_left_behind(dir.path()).unwrap().len(), 4);
        let there = |name: &&&str| dir.path().join(name).exists();
        assert_eq!(names.iter().filter(there).count(), 5);
        assert!(used.join("CURRENT").exists());
    }
}
