use super::restore;
use crate::args::{Command, Restore};
use crate::backup::tests::{args, data_directory, text};
use crate::backup::{create, target::Target};
use crate::output::Output;
use firn::base::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Backs `data` up into a target beside it, and returns the target.
fn backed_up(root: &Path) -> PathBuf {
    let (data, target) = (root.join("data"), root.join("backups"));
    data_directory(&data);
    let line = ["backup", text(&target), "--from-dir", text(&data)];
    let Command::Backup(take) = args(&line) else {
        panic!("{line:?}")
    };
    create::run(&take, &Output::new(true)).unwrap();
    target
}

fn command(target: &Path, to: &Path, more: &[&str]) -> Restore {
    let line = ["restore", text(target), "--to", text(to)];
    match args(&[&line, more].concat()) {
        Command::Restore(restore) => restore,
        other => panic!("{other:?}"),
    }
}

/// Restores, but ends the restore at the step with this number.
fn cut_short(args: &Restore, at: usize) -> Result<Vec<String>> {
    let target = Target::open(&args.target, false)?;
    let steps = Cell::new(0);
    let step = |name: &str| {
        if steps.replace(steps.get() + 1) == at {
            return Err(Error::new(ErrorKind::ShutDown, format!("killed: {name}")));
        }
        Ok(())
    };
    restore(args, &target, &Output::new(true), &step).map(|report| report.tables)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = dir.read_dir().unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn cut_short_anywhere_it_leaves_no_database_and_the_next_one_goes_well() {
    let root = tempfile::tempdir().unwrap();
    let target = backed_up(root.path());
    for table in [None, Some("d.t")] {
        let more: Vec<&str> = table.iter().flat_map(|t| ["--table", t]).collect();
        let mut ended = false;
        for at in 0.. {
            let to = root
                .path()
                .join(format!("{at}{}", table.unwrap_or_default()));
            let in_place = match cut_short(&command(&target, &to, &more), at) {
                Ok(_) => {
                    ended = true;
                    true
                }
                Err(error) if error.to_string().contains("in place") => to.join("#firn").exists(),
                Err(error) => {
                    assert!(!to.join("#firn").exists(), "{at}: {error}");
                    false
                }
            };
            // The definitions of this second restore do not mix with those of the one that was cut
            // short.
            let again = cut_short(&command(&target, &to, &[]), usize::MAX);
            match in_place {
                true => assert_eq!(*again.unwrap_err().kind(), ErrorKind::AlreadyExists),
                false => {
                    assert_eq!(again.unwrap(), ["d/t", "d/u"], "{at}");
                    assert_eq!(names(&to), ["#firn", "d"], "{at}");
                    assert_eq!(names(&to.join("d")), ["db.opt", "t.frm", "u.frm"], "{at}");
                }
            }
            assert!(to.join("#firn/CURRENT").exists());
            if ended {
                assert!(at > 5, "{at} steps");
                break;
            }
        }
    }
}

#[test]
fn what_others_put_there_stays_when_one_is_undone() {
    let root = tempfile::tempdir().unwrap();
    let target = backed_up(root.path());
    let to = root.path().join("to");
    std::fs::create_dir_all(to.join("mysql")).unwrap();
    let command = command(&target, &to, &[]);
    // The restore ends after it has put two definitions in place.
    assert!(cut_short(&command, 4).is_err());
    assert_eq!(names(&to.join("d")), ["db.opt", "t.frm"]);
    // Another server's definition takes the place of one of them.
    std::fs::remove_file(to.join("d/t.frm")).unwrap();
    std::fs::write(to.join("d/t.frm"), "of t").unwrap();
    let refused = cut_short(&command, usize::MAX).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(names(&to.join("d")), ["t.frm"]);
    std::fs::remove_file(to.join("d/t.frm")).unwrap();
    cut_short(&command, usize::MAX).unwrap();
    assert_eq!(names(&to), ["#firn", "d", "mysql"]);
}
