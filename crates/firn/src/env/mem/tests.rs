use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/db").join(name)
}

fn env() -> MemEnv {
    let env = MemEnv::new();
    env.create_dir_all(Path::new("/db")).unwrap();
    env
}

fn put(env: &MemEnv, name: &str, bytes: &[u8]) -> Box<dyn AppendFile> {
    let mut file = env.create(&path(name)).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
    file
}

fn sync_dir(env: &MemEnv) {
    env.sync_dir(Path::new("/db")).unwrap();
}

fn blocks(bytes: &[u8]) -> crate::env::AlignedBuf {
    let mut buf = crate::env::AlignedBuf::new();
    buf.extend_from_slice(bytes);
    buf
}

#[test]
fn seed_zero_keeps_synced_bytes_and_names_only() {
    let env = env();
    let mut kept = put(&env, "kept", b"synced");
    sync_dir(&env);
    kept.append(b" not").unwrap();
    put(&env, "no-name", b"synced");
    put(&env, "old", b"x");
    env.remove(&path("kept")).unwrap();
    env.rename(&path("old"), &path("new")).unwrap();
    assert_eq!(env.list_dir(Path::new("/db")).unwrap(), ["new", "no-name"]);
    let found = env.crash(0);
    assert_eq!(found.list_dir(Path::new("/db")).unwrap(), ["kept"]);
    assert_eq!(found.read(&path("kept")).unwrap(), b"synced");
}

#[test]
fn after_sync_dir_every_seed_keeps_everything() {
    let env = env();
    put(&env, "a", b"1");
    put(&env, "b", b"2");
    env.rename(&path("a"), &path("b")).unwrap();
    put(&env, "c", b"3");
    env.remove(&path("c")).unwrap();
    sync_dir(&env);
    for seed in 0..50 {
        let found = env.crash(seed);
        assert_eq!(found.list_dir(Path::new("/db")).unwrap(), ["b"]);
        assert_eq!(found.read(&path("b")).unwrap(), b"1");
    }
}

#[test]
fn seeds_keep_drop_reorder_and_tear() {
    let env = env();
    let log = env.open_log(&path("log"), true, true).unwrap();
    log.preallocate(4 * 4096).unwrap();
    sync_dir(&env);
    for block in 0..4u64 {
        log.write_at(block * 4096, &blocks(&[block as u8 + 1; 4096]))
            .unwrap();
    }
    let (mut all, mut none, mut reordered, mut torn) = (0, 0, 0, 0);
    for seed in 0..200 {
        let found = env.crash(seed).read(&path("log")).unwrap();
        let sectors: Vec<bool> = found.chunks(512).map(|s| s[0] != 0).collect();
        for (at, sector) in found.chunks(512).enumerate() {
            let new = (at / 8) as u8 + 1;
            assert!(
                sector.iter().all(|&b| b == sector[0]) && [0, new].contains(&sector[0]),
                "seed {seed}: a sector is mixed"
            );
        }
        let whole: Vec<usize> = sectors
            .chunks(8)
            .map(|b| b.iter().filter(|&&s| s).count())
            .collect();
        all += usize::from(sectors.iter().all(|&s| s));
        none += usize::from(!sectors.contains(&true));
        torn += usize::from(whole.iter().any(|&n| n % 8 != 0));
        reordered += usize::from(whole.windows(2).any(|w| w[0] == 0 && w[1] == 8));
    }
    assert!(
        all > 0 && none > 0 && reordered > 0 && torn > 0,
        "all {all}, none {none}, reordered {reordered}, torn {torn}"
    );
}

#[test]
fn a_durable_write_makes_only_itself_durable() {
    let env = env();
    let log = env.open_log(&path("log"), true, true).unwrap();
    sync_dir(&env);
    log.write_at(0, &blocks(&[1; 2 * 4096])).unwrap();
    log.write_durable_at(4096, &blocks(&[2; 4096])).unwrap();
    for seed in 0..50 {
        let found = env.crash(seed).read(&path("log")).unwrap();
        assert!(found[4096..].iter().all(|&b| b == 2), "seed {seed}");
    }
    let found = env.crash(0).read(&path("log")).unwrap();
    assert!(found[..4096].iter().all(|&b| b == 0));
}

#[test]
fn it_dies_at_the_chosen_sync() {
    let count = |env: &MemEnv| {
        let log = env.open_log(&path("log"), true, true)?;
        log.preallocate(4096)?;
        env.sync_dir(Path::new("/db"))?;
        log.write_durable_at(0, &blocks(b"x"))?;
        log.write_at(0, &blocks(b"y"))?;
        log.sync()
    };
    let whole = env();
    count(&whole).unwrap();
    assert_eq!(whole.sync_points(), 4);
    for n in 1..=4 {
        let env = env();
        env.crash_at_sync(n);
        count(&env).unwrap_err();
        assert!(env.is_dead());
        assert_eq!(env.sync_points(), n);
        assert!(matches!(
            env.remove(&path("log")).unwrap_err().kind(),
            ErrorKind::Io { .. }
        ));
        let found = env.crash(0);
        let content = found.read(&path("log")).ok().map(|c| c[0]);
        assert_eq!(content, [None, None, Some(0), Some(b'x')][n as usize - 1]);
    }
}

#[test]
fn a_killed_process_leaves_what_it_wrote() {
    let env = env();
    let mut file = put(&env, "a", b"1");
    file.append(b"2").unwrap();
    let found = env.kill();
    assert!(env.is_dead() && !found.is_dead());
    assert_eq!(found.read(&path("a")).unwrap(), b"12");
    assert!(env.kill().crash(0).read(&path("a")).is_err());
    sync_dir(&found);
    assert_eq!(found.crash(0).read(&path("a")).unwrap(), b"1");
}

#[test]
fn the_lock_is_exclusive_until_dropped_or_crashed() {
    let env = env();
    let held = env.lock(&path("LOCK")).unwrap();
    let busy = env.lock(&path("LOCK")).err().unwrap();
    assert_eq!(busy.kind(), &ErrorKind::Busy);
    let found = env.crash(1);
    found.lock(&path("LOCK")).unwrap();
    drop(held);
}

#[test]
fn missing_things_are_not_found() {
    let env = env();
    let x = path("x");
    let errors = [
        env.open(&x).err(),
        env.open_log(&x, false, true).err(),
        env.remove(&x).err(),
        env.rename(&x, &path("y")).err(),
        env.create(Path::new("/no/x")).err(),
        env.list_dir(Path::new("/no")).err(),
    ];
    for error in errors {
        assert_eq!(error.unwrap().kind(), &ErrorKind::NotFound);
    }
    assert!(!env.exists(&x).unwrap());
    assert!(env.exists(Path::new("/db")).unwrap());
}

#[test]
fn the_clock_moves_by_itself_and_on_demand() {
    let env = env();
    let start = env.monotonic_micros();
    assert_eq!(env.monotonic_micros(), start + 1);
    env.advance_clock(1000);
    assert_eq!(env.monotonic_micros(), start + 1002);
    assert!(env.crash(0).monotonic_micros() > start + 1002);
}

#[test]
fn a_file_with_two_names_is_one_file_and_a_directory_moves_as_a_whole() {
    let env = MemEnv::new();
    for dir in ["/d", "/new.tmp"] {
        env.create_dir_all(Path::new(dir)).unwrap();
    }
    let mut file = env.create(Path::new("/d/a")).unwrap();
    file.append(b"bytes").unwrap();
    file.sync().unwrap();
    env.link(Path::new("/d/a"), Path::new("/new.tmp/a"))
        .unwrap();
    let taken = env.link(Path::new("/d/a"), Path::new("/new.tmp/a"));
    assert_eq!(*taken.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(env.links(Path::new("/d/a")).unwrap(), 2);
    env.sync_dir(Path::new("/d")).unwrap();
    env.sync_dir(Path::new("/new.tmp")).unwrap();
    env.remove(Path::new("/d/a")).unwrap();
    assert_eq!(env.links(Path::new("/new.tmp/a")).unwrap(), 1);
    env.rename(Path::new("/new.tmp"), Path::new("/new"))
        .unwrap();
    assert!(!env.exists(Path::new("/new.tmp")).unwrap());
    assert_eq!(env.read(Path::new("/new/a")).unwrap(), b"bytes");

    let mut seen = [0; 2];
    for seed in 0..40 {
        let after = env.kill().crash(seed);
        let whole = after.exists(Path::new("/new")).unwrap();
        assert_ne!(
            whole,
            after.exists(Path::new("/new.tmp")).unwrap(),
            "seed {seed}"
        );
        let name = if whole { "/new/a" } else { "/new.tmp/a" };
        assert_eq!(
            after.read(Path::new(name)).unwrap(),
            b"bytes",
            "seed {seed}"
        );
        seen[usize::from(whole)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    env.sync_dir(Path::new("/")).unwrap_err();
}

#[test]
fn a_file_is_cut_at_once_and_durably_with_the_next_sync() {
    let spans_of = |env: &MemEnv| env.open_spans(&path("f"), true).unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let env = env();
        let spans = spans_of(&env);
        sync_dir(&env);
        spans.write_at(0, &[1; 9000]).unwrap();
        spans.sync().unwrap();
        spans.write_at(9000, &[2; 100]).unwrap();
        spans.set_len(5000).unwrap();
        assert_eq!(env.read(&path("f")).unwrap(), [1; 5000]);
        spans.write_at(5000, &[3; 50]).unwrap();
        let left = env.copy().crash(seed).read(&path("f")).unwrap();
        assert!(left[..5000] == [1; 5000] && !left.contains(&2));
        lengths.insert(left.len());
        spans.sync().unwrap();
        let left = env.crash(seed).read(&path("f")).unwrap();
        assert_eq!(left, [[1; 5000].as_slice(), &[3; 50]].concat());
    }
    assert!(
        lengths.is_superset(&[5000, 5050, 9000].into()),
        "{lengths:?}"
    );
}

#[test]
fn it_dies_before_the_change_of_names_that_was_asked_for() {
    let steps: [fn(&MemEnv) -> Result<()>; 7] = [
        |env| env.create(&path("a")).map(drop),
        |env| env.open_log(&path("b"), true, false).map(drop),
        |env| env.allocate(&path("c"), 4096).map(drop),
        |env| env.create_from_allocated(&path("c"), &path("d")).map(drop),
        |env| env.link(&path("a"), &path("e")),
        |env| env.rename(&path("b"), &path("f")),
        |env| env.remove(&path("a")),
    ];
    for nth in 0..steps.len() {
        let env = env();
        env.crash_at_name_change(env.name_changes() + nth as u64 + 1);
        let (before, rest) = steps.split_at(nth);
        before.iter().for_each(|step| step(&env).unwrap());
        let names = env.list_dir(Path::new("/db")).unwrap();
        assert!(!env.is_dead());
        assert!(rest.iter().all(|step| step(&env).is_err()));
        assert!(env.is_dead());
        assert_eq!(env.list_dir(Path::new("/db")).unwrap(), names);
    }
}

#[test]
fn a_log_file_keeps_its_bytes_when_it_gets_more_room() {
    let env = env();
    let log = env.open_log(&path("log"), true, false).unwrap();
    log.write_durable_at(0, &blocks(&[7; 4096])).unwrap();
    log.write_at(4096, &blocks(&[8; 4096])).unwrap();
    log.reserve(4 * 4096).unwrap();
    sync_dir(&env);
    let found = env.crash(0).read(&path("log")).unwrap();
    assert_eq!(
        found,
        [vec![7; 4096], vec![8; 4096], vec![0; 8192]].concat()
    );
}
