use super::super::testing::TestBinlog;
use super::*;
use crate::env::MemEnv;

const FILES: [&str; 4] = [
    "d/bin.000001",
    "d/bin.000002",
    "d/bin.000003",
    "d/bin.000004",
];

fn known(path: &str, created: u32) -> BinlogFile {
    BinlogFile {
        path: PathBuf::from(path),
        created,
        server_id: 5,
    }
}

/// Two server runs of two files each. The first one was killed; the second one uses the same
/// numbers again.
fn two_runs() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("d")).unwrap();
    TestBinlog::begin(10, true, true)
        .transaction(1, 5)
        .transaction(2, 5)
        .rotate("bin.000002")
        .save(&env, FILES[0]);
    TestBinlog::begin(20, false, true)
        .transaction(3, 5)
        .save(&env, FILES[1]);
    TestBinlog::begin(30, true, true)
        .transaction(1, 5)
        .transaction(4, 5)
        .rotate("bin.000004")
        .save(&env, FILES[2]);
    TestBinlog::begin(40, false, true)
        .transaction(5, 5)
        .stop()
        .save(&env, FILES[3]);
    env
}

fn committed(env: &dyn Env, from: usize, xids: &[u64]) -> Result<Vec<u64>> {
    let known = known(FILES[from], 10 * (from as u32 + 1));
    let xids = xids.iter().copied().collect();
    let run = ServerRunFiles::find(env, &known, None)?;
    Ok(run.committed(env, &xids)?.into_iter().collect())
}

#[test]
fn a_run_has_its_own_numbers() {
    let env = two_runs();
    assert_eq!(committed(&env, 0, &[1, 2, 3, 4, 5]).unwrap(), [1, 2, 3]);
    assert_eq!(committed(&env, 1, &[1, 2, 3]).unwrap(), [3]);
    assert_eq!(committed(&env, 2, &[1, 2, 3, 4, 5]).unwrap(), [1, 4, 5]);
    let run = ServerRunFiles::find(&env, &known(FILES[0], 10), None).unwrap();
    assert_eq!((run.last(), run.was_killed()), (Path::new(FILES[1]), true));
    let run = ServerRunFiles::find(&env, &known(FILES[2], 30), None).unwrap();
    assert_eq!((run.last(), run.was_killed()), (Path::new(FILES[3]), false));
}

#[test]
fn a_file_that_is_gone_decides_nothing() {
    let env = two_runs();
    let kind = |from, xids: &[u64]| committed(&env, from, xids).unwrap_err().kind().clone();
    // A file that was created at another time has taken the name of the known file.
    let other = ServerRunFiles::find(&env, &known(FILES[0], 11), None).unwrap_err();
    assert_eq!(other.kind(), &ErrorKind::NotFound);
    env.remove(Path::new(FILES[1])).unwrap();
    assert_eq!(kind(0, &[1, 3]), ErrorKind::NotFound);
    assert_eq!(kind(1, &[3]), ErrorKind::NotFound);
    // All wanted transactions are in the first file, so the missing one does not matter.
    assert_eq!(committed(&env, 0, &[1, 2]).unwrap(), [1, 2]);
}

#[test]
fn a_kill_between_two_files_loses_nothing() {
    let env = two_runs();
    for path in &FILES[1..] {
        env.remove(Path::new(path)).unwrap();
    }
    assert_eq!(committed(&env, 0, &[1, 9]).unwrap(), [1]);
    // A new server run creates the file that the old one named as its next.
    TestBinlog::begin(30, true, true)
        .transaction(9, 5)
        .save(&env, FILES[1]);
    assert_eq!(committed(&env, 0, &[1, 9]).unwrap(), [1]);
}

#[test]
fn a_torn_end_is_that_of_a_kill_only_in_the_last_file() {
    let env = two_runs();
    let mut file = TestBinlog::begin(20, false, true);
    file.transaction(3, 5);
    let len = file.bytes().len();
    file.transaction(6, 5);
    for cut in len..file.bytes().len() {
        let mut torn = TestBinlog::begin(20, false, true);
        torn.transaction(3, 5)
            .transaction(6, 5)
            .bytes()
            .truncate(cut);
        torn.save(&env, FILES[1]);
        assert_eq!(committed(&env, 1, &[3, 6]).unwrap(), [3]);
    }
    let mut torn = TestBinlog::begin(10, true, true);
    torn.transaction(1, 5).transaction(2, 5);
    for cut in [0, 3, 40] {
        let mut file = TestBinlog::begin(10, true, true);
        file.transaction(1, 5).transaction(2, 5);
        let len = file.bytes().len();
        file.bytes().truncate(len - cut);
        file.save(&env, FILES[0]);
        let error = committed(&env, 0, &[1, 9]).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert_eq!(committed(&env, 0, &[1]).unwrap(), [1]);
    }
}

#[test]
fn damage_before_the_end_is_no_torn_end() {
    let env = two_runs();
    let mut file = TestBinlog::begin(20, false, true);
    file.transaction(3, 5);
    let len = file.bytes().len();
    file.transaction(6, 5).transaction(7, 5);
    let whole = file.bytes().clone();
    // The two events of transaction 6, without their headers.
    let first = len + 19..len + 19 + 5 + 4;
    let second = first.end + 19..first.end + 19 + 8 + 4;
    for at in first.chain(second) {
        *file.bytes() = whole.clone();
        file.bytes()[at] ^= 1;
        file.save(&env, FILES[1]);
        let error = committed(&env, 1, &[3, 6, 7]).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert_eq!(committed(&env, 1, &[3]).unwrap(), [3]);
    }
    // A file that was closed has no torn end.
    let mut closed = TestBinlog::begin(20, false, true);
    closed.transaction(3, 5).stop();
    let len = closed.bytes().len();
    closed.bytes().truncate(len - 1);
    closed.save(&env, FILES[1]);
    assert!(committed(&env, 1, &[3, 6]).unwrap_err().is_corruption());
}

#[test]
fn numbers_may_be_left_out() {
    let env = two_runs();
    TestBinlog::begin(10, true, true)
        .transaction(1, 5)
        .rotate("bin.000100")
        .save(&env, FILES[0]);
    TestBinlog::begin(20, false, true)
        .transaction(3, 5)
        .save(&env, "d/bin.000100");
    env.remove(Path::new(FILES[1])).unwrap();
    assert_eq!(committed(&env, 0, &[1, 2, 3]).unwrap(), [1, 3]);
    env.remove(Path::new("d/bin.000100")).unwrap();
    // The remaining files belong to the other server run and have higher numbers.
    let gone = committed(&env, 0, &[1, 3]).unwrap_err();
    assert_eq!(gone.kind(), &ErrorKind::NotFound);
}

#[test]
fn a_log_that_was_moved_is_found_by_what_it_says_of_itself() {
    let env = two_runs();
    env.create_dir_all(Path::new("e")).unwrap();
    for path in FILES {
        env.rename(Path::new(path), Path::new(&path.replace('d', "e")))
            .unwrap();
    }
    let known = known(FILES[0], 10);
    let find = |moved_to| ServerRunFiles::find(&env, &known, moved_to);
    assert_eq!(find(None).unwrap_err().kind(), &ErrorKind::NotFound);
    let elsewhere = Some(Path::new("d"));
    assert_eq!(find(elsewhere).unwrap_err().kind(), &ErrorKind::NotFound);
    let run = find(Some(Path::new("e"))).unwrap();
    assert_eq!(run.last(), Path::new("e/bin.000002"));
    // Another server's file has taken the old name.
    TestBinlog::begin(11, true, true).save(&env, FILES[0]);
    let run = find(Some(Path::new("e"))).unwrap();
    assert_eq!(run.last(), Path::new("e/bin.000002"));
    TestBinlog::begin(11, true, true).save(&env, "e/bin.000001");
    let other = find(Some(Path::new("e"))).unwrap_err();
    assert!(other.to_string().contains("another file"), "{other}");
}

#[test]
fn numbers_go_on_behind_six_digits() {
    assert_eq!(
        successor(Path::new("d/bin.999999")).unwrap(),
        Path::new("d/bin.1000000")
    );
    assert_eq!(
        successor(Path::new("a.b.000009")).unwrap(),
        Path::new("a.b.000010")
    );
    assert_eq!(successor(Path::new("bin.index")), None);
    assert_eq!(successor(Path::new("bin")), None);
    assert_eq!(directory(Path::new("bin.000001")), Path::new("."));
    assert_eq!(directory(Path::new("./bin.000001")), Path::new("."));
}

#[test]
fn one_file_has_several_names() {
    let env = two_runs();
    let same = |one: &str, other: &str| same_file(&env, Path::new(one), Path::new(other)).unwrap();
    assert!(same(FILES[0], FILES[0]));
    assert!(!same(FILES[0], FILES[1]));
    assert!(!same(FILES[0], "e/bin.000001"));
    env.create_dir_all(Path::new("e")).unwrap();
    TestBinlog::begin(10, true, true).save(&env, "e/bin.000001");
    assert!(!same(FILES[0], "e/bin.000001"), "one of them is in use");
    TestBinlog::begin(10, true, true)
        .rotate("bin.000002")
        .save(&env, "e/bin.000001");
    assert!(same(FILES[0], "e/bin.000001"));
}
