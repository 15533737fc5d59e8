use super::*;
use crate::env::{MemEnv, PosixEnv, PrefetchBatch, ReadClass};
use std::time::Instant;

const MS: u64 = 1_000_000;

fn speed(text: &str) -> DiskSpeed {
    text.parse().unwrap()
}

#[test]
fn texts_that_describe_a_disk_and_others() {
    let all = DiskSpeed {
        latency_us: 500,
        iops: NonZeroU64::new(3000),
        bytes_per_s: NonZeroU64::new(125_000_000),
    };
    assert_eq!(speed("500us,3000iops,125MBps"), all);
    assert_eq!(speed("125MBps,500us,3000iops"), all);
    let latency = DiskSpeed {
        latency_us: 120,
        iops: None,
        bytes_per_s: None,
    };
    assert_eq!(speed("120us"), latency);
    for text in [
        "",
        ",",
        "120",
        "us",
        "-1us",
        "120 us",
        "120us,",
        "120us ,1iops",
        "120us, 1iops",
        "+1us",
        "120us,130us",
        "1ms",
        "120US",
        "3000iops,",
        "1MB",
        "٣us",
    ] {
        let error = text.parse::<DiskSpeed>().unwrap_err().to_string();
        assert!(error.contains("'120us'"), "{text}: {error}");
    }
    for (text, limit) in [
        ("0us", "us is from 1 to 10000000"),
        ("10000001us", "us is from 1 to 10000000"),
        ("99999999999999999999us", "us is from 1 to 10000000"),
        ("1us,0iops", "iops is from 1 to 1000000000"),
        ("1000000001iops", "iops is from 1 to 1000000000"),
        ("1000000001MBps", "MBps is from 1 to 1000000000"),
    ] {
        let error = text.parse::<DiskSpeed>().unwrap_err().to_string();
        assert!(error.contains(limit), "{text}: {error}");
        assert!(error.contains(&format!("'{text}'")), "{text}: {error}");
    }
    speed("10000000us,1000000000iops,1000000000MBps");
    // Fields that no text gives are no reason to overflow.
    let endless = Disk::new(DiskSpeed {
        latency_us: u64::MAX,
        iops: Some(NonZeroU64::MAX),
        bytes_per_s: Some(NonZeroU64::MIN),
    });
    assert_eq!(endless.operate(MS, u64::MAX), u64::MAX);
}

/// Lets `clients` begin an operation each, and the next one when it has ended, until `until`.
/// Returns the number of operations that ended by then.
fn ended(disk: &Disk, clients: usize, bytes: u64, until: u64) -> u64 {
    let mut ends = vec![0; clients];
    let mut ended = 0;
    loop {
        let next = ends.iter_mut().min().unwrap();
        *next = disk.operate(*next, bytes);
        if *next > until {
            return ended;
        }
        ended += 1;
    }
}

#[test]
fn clients_share_operations_and_bytes() {
    for clients in [1, 2, 64] {
        // Nothing but the latency limits these.
        let disk = Disk::new(speed("100us"));
        assert_eq!(
            ended(&disk, clients, 1 << 30, 1000 * MS),
            10_000 * clients as u64
        );
        // The operations of two seconds, and those that an idle disk serves at once.
        let disk = Disk::new(speed("100us,3000iops"));
        let count = ended(&disk, clients, 4096, 2000 * MS);
        assert!((5990..=6031).contains(&count), "{clients} clients: {count}");
        // The same with 1,250 operations of 100,000 bytes a second.
        let disk = Disk::new(speed("100us,125MBps"));
        let count = ended(&disk, clients, 100_000, 2000 * MS);
        assert!((2490..=2513).contains(&count), "{clients} clients: {count}");
        // The lower limit holds.
        let disk = Disk::new(speed("3000iops,125MBps"));
        let count = ended(&disk, clients, 100_000, 2000 * MS);
        assert!((2490..=2513).contains(&count), "{clients} clients: {count}");
    }
}

#[test]
fn an_idle_disk_serves_a_burst_and_no_more() {
    let disk = Disk::new(speed("500us,3000iops,125MBps"));
    for round in 1..4 {
        // An hour later the bucket is full, and no fuller than before.
        let now = round * 3600 * 1000 * MS;
        let begun: Vec<u64> = (0..60).map(|_| disk.operate(now, 0) - now).collect();
        assert!(begun[..30].iter().all(|&ns| ns == MS / 2), "{begun:?}");
        let last = begun[59] - MS / 2;
        assert!(
            (9 * MS..=11 * MS).contains(&last),
            "30 operations beyond the burst: {last}"
        );
    }
    // A large operation waits for its own bytes: 125 MB without the burst.
    let now = 9 * 3600 * 1000 * MS;
    let took = disk.operate(now, 125_000_000) - now;
    assert!((980 * MS..=1000 * MS).contains(&took), "{took}");
    // A disk slower than the burst still serves one operation at once.
    let disk = Disk::new(speed("10iops"));
    assert_eq!((disk.operate(0, 1), disk.operate(0, 1)), (0, 100 * MS));
}

#[test]
fn a_small_read_waits_for_one_piece_of_a_long_sync() {
    for syncs in [1, 4] {
        let disk = Disk::new(speed("500us,3000iops,125MBps"));
        // Each client has a moment at which it goes on; the one with the earliest goes on next.
        let mut pieces: Vec<_> = (0..syncs)
            .map(|_| disk.pieces(0, 125_000_000 / syncs))
            .collect();
        let mut moments = vec![Some(0); pieces.len()];
        let (mut read, mut reads, mut slowest) = (0, 0_u64, 0);
        while let Some(moment) = moments.iter().flatten().min().copied() {
            if moment > read {
                let end = disk.operate(read, 4096);
                slowest = slowest.max(end - read);
                (read, reads) = (end, reads + 1);
                continue;
            }
            let at = moments.iter().position(|&at| at == Some(moment)).unwrap();
            moments[at] = pieces[at].next();
            assert!(moments[at].is_none_or(|next| next <= 1100 * MS));
        }
        // A piece of 256 KiB takes 2.1 ms, the read itself 0.5 ms.
        assert!(slowest <= (1 + 22 * syncs / 10) * MS, "{syncs}: {slowest}");
        // The syncs leave the disk to the reads in turn, and end as if they were alone.
        assert!(reads > 1000 / (1 + 22 * syncs / 10) / 2, "{syncs}: {reads}");
        assert!(read >= 980 * MS, "{syncs}: {read}");
    }
}

/// A disk of 40 µs over a file of 100,000 bytes in memory. That is less than [`POLLED_US`], so
/// waits advance the clock of the environment and do not sleep.
fn in_memory() -> (MemEnv, SlowEnv, Arc<dyn ReadFile>) {
    let env = MemEnv::new();
    env.place(Path::new("/file"), vec![7; 100_000]);
    let slow = SlowEnv::new(Arc::new(env.clone()), speed("40us"));
    let file = slow.open(Path::new("/file")).unwrap();
    (env, slow, file)
}

/// Microseconds of the environment's clock that a read takes.
fn read(env: &MemEnv, file: &dyn ReadFile, offset: u64, len: usize) -> u64 {
    let begun = env.monotonic_micros();
    let mut buf = vec![0; len];
    file.read_exact_at(ReadClass::Point, offset, &mut buf)
        .unwrap();
    assert!(buf.iter().all(|&byte| byte == 7));
    env.monotonic_micros() - begun
}

fn announce(file: &dyn ReadFile, ranges: &[(u64, u64)]) {
    let mut reads = PrefetchBatch::new();
    ranges
        .iter()
        .for_each(|&(at, len)| file.prefetch(at, len, &mut reads));
    reads.start();
}

#[test]
fn a_read_takes_the_latency_and_an_announced_one_what_is_left_of_it() {
    let (env, _slow, file) = in_memory();
    let took = read(&env, &*file, 0, 5000);
    assert!((40..50).contains(&took), "{took}");
    announce(&*file, &[(0, 5000), (8000, 5000), (90_000, 100)]);
    env.advance_clock(20);
    let took = read(&env, &*file, 8000, 5000);
    assert!(
        (10..30).contains(&took),
        "half of the latency is over: {took}"
    );
    assert!(read(&env, &*file, 0, 5000) < 10, "joined with the other");
    env.advance_clock(40);
    assert!(read(&env, &*file, 90_050, 50) < 10);
    // Each byte was announced once.
    assert!(read(&env, &*file, 0, 5000) >= 40);
    assert!(read(&env, &*file, 90_000, 50) < 10);
    assert!(read(&env, &*file, 90_000, 50) >= 40);
    // A range that was announced only in part is read.
    announce(&*file, &[(50_000, 100)]);
    env.advance_clock(40);
    assert!(read(&env, &*file, 50_000, 101) >= 40);
    // An announced read is forgotten in the end.
    env.advance_clock(2_000_000);
    announce(&*file, &[(70_000, 1)]);
    assert!(read(&env, &*file, 50_000, 100) >= 40);
}

/// Seconds for which the operations taken so far keep a disk of one operation a second busy.
fn operations(slow: &SlowEnv) -> u64 {
    let (device, second) = (&slow.device, 1000 * MS);
    let now = device.now_ns();
    // A bucket has room for one operation, and asking takes one.
    (device.disk.operate(now, 0) - now + second / 2) / second
}

#[test]
fn announced_reads_are_operations_as_a_prefetcher_makes_them() {
    let taken = |batches: &[&[(u64, u64)]]| {
        let env = MemEnv::new();
        env.place(Path::new("/file"), vec![7; 100]);
        let slow = SlowEnv::new(Arc::new(env), speed("1iops"));
        let file = slow.open(Path::new("/file")).unwrap();
        batches.iter().for_each(|batch| announce(&*file, batch));
        operations(&slow)
    };
    assert_eq!(taken(&[]), 0);
    assert_eq!(taken(&[&[]]), 0);
    // Neighbours of one batch are one operation, in any order.
    assert_eq!(taken(&[&[(0, 5000), (8000, 5000)]]), 1);
    assert_eq!(taken(&[&[(8000, 5000), (0, 5000)]]), 1);
    assert_eq!(taken(&[&[(0, 5000), (90_000, 100)]]), 2);
    // Those of several batches are not.
    assert_eq!(taken(&[&[(0, 5000)], &[(8000, 5000)]]), 2);
    // A range that is announced already is not read again.
    assert_eq!(taken(&[&[(0, 5000)], &[(1000, 4000)], &[(0, 5000)]]), 1);
    // Joined ranges have a limit of length, and each 256 KiB count.
    let chain: Vec<(u64, u64)> = (0..32).map(|n| (n << 16, 1 << 16)).collect();
    assert_eq!(taken(&[&chain]), 8);
    // A range above that length is no announced read.
    assert_eq!(taken(&[&[(0, (1 << 20) + 1)]]), 0);
    assert_eq!(taken(&[&[(0, 1 << 20)]]), 4);
}

#[test]
fn a_batch_that_is_not_started_costs_nothing() {
    let (env, slow, file) = in_memory();
    let mut reads = PrefetchBatch::new();
    file.prefetch(0, 5000, &mut reads);
    drop(reads);
    assert!(read(&env, &*file, 0, 5000) >= 40);
    let other = slow.open(Path::new("/file")).unwrap();
    // One batch may have reads of several files.
    let mut reads = PrefetchBatch::new();
    file.prefetch(0, 5000, &mut reads);
    other.prefetch(5000, 5000, &mut reads);
    reads.start();
    env.advance_clock(40);
    assert!(read(&env, &*file, 0, 5000) < 10);
    assert!(read(&env, &*other, 5000, 5000) < 10);
    assert!(read(&env, &*other, 0, 5000) >= 40);
}

#[test]
fn files_that_are_never_synced_pay_for_what_the_page_cache_does_not_hold() {
    let env = MemEnv::new();
    let slow = SlowEnv::new(Arc::new(env.clone()), speed("40us"));
    let took = |f: &mut dyn FnMut()| {
        let begun = env.monotonic_micros();
        f();
        env.monotonic_micros() - begun
    };
    let mut file = slow.create(Path::new("/run")).unwrap();
    let (cached, more) = (vec![1; 64 << 20], vec![1; 1 << 20]);
    assert!(took(&mut || file.append(&cached).unwrap()) < 10);
    assert!(took(&mut || file.append(&more[1..]).unwrap()) < 10);
    assert!(took(&mut || file.append(&[1]).unwrap()) >= 40);
    assert!(took(&mut || file.append(&more[1..]).unwrap()) < 10);
    assert!(took(&mut || file.append(&more).unwrap()) >= 40);
    file.sync().unwrap();
    assert!(took(&mut || file.append(&more).unwrap()) < 10);
}

#[test]
fn the_sleeps_of_a_waiting_thread_end_in_time() {
    let slack = || rustix::thread::current_timer_slack().unwrap();
    let own = slack();
    let waiting = std::thread::spawn(move || {
        let slow = SlowEnv::new(Arc::new(PosixEnv::new()), speed("3000us"));
        slow.device.wait(slow.device.now_ns() + MS);
        slack()
    });
    assert_eq!(waiting.join().unwrap(), 1);
    assert_eq!(slack(), own, "other threads keep theirs");
}

#[test]
fn syncs_pay_for_writes() {
    let (env, slow, _) = in_memory();
    let during = |f: &mut dyn FnMut()| {
        let begun = env.monotonic_micros();
        f();
        env.monotonic_micros() - begun
    };
    let mut file = slow.create(Path::new("/new")).unwrap();
    assert!(during(&mut || file.append(&[1; 1000]).unwrap()) < 10);
    assert!(during(&mut || file.sync().unwrap()) >= 40);
    assert!(during(&mut || slow.sync_dir(Path::new("/")).unwrap()) >= 40);
    let spans = slow.open_spans(Path::new("/spans"), true).unwrap();
    assert!(during(&mut || spans.write_at(0, &[1; 1000]).unwrap()) < 10);
    assert!(during(&mut || spans.sync().unwrap()) >= 40);
    let log = slow.open_log(Path::new("/log"), true, false).unwrap();
    let mut blocks = crate::env::AlignedBuf::new();
    blocks.extend_from_slice(&[1; 4096]);
    assert!(during(&mut || log.write_at(0, &blocks).unwrap()) < 10);
    assert!(during(&mut || log.sync().unwrap()) >= 40);
    assert!(during(&mut || log.write_durable_at(4096, &blocks).unwrap()) >= 40);
}

#[test]
fn on_a_real_disk_nothing_is_faster_than_the_latency() {
    const LATENCY_US: u128 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for inner in [PosixEnv::new(), PosixEnv::without_ring()] {
        let slow = SlowEnv::new(Arc::new(inner), speed("3000us"));
        let begun = Instant::now();
        let mut file = slow.create(&path).unwrap();
        file.append(&[7; 100_000]).unwrap();
        file.sync().unwrap();
        assert!(begun.elapsed().as_micros() >= LATENCY_US);
        for file in [slow.open(&path).unwrap(), slow.open_direct(&path).unwrap()] {
            for announced in [false, true] {
                let begun = Instant::now();
                if announced {
                    announce(&*file, &[(0, 5000), (60_000, 5000)]);
                }
                let mut buf = [0; 5000];
                file.read_exact_at(ReadClass::Point, 0, &mut buf).unwrap();
                assert!(begun.elapsed().as_micros() >= LATENCY_US, "{announced}");
                file.read_exact_at(ReadClass::Point, 60_000, &mut buf)
                    .unwrap();
                assert_eq!(buf, [7; 5000]);
                assert!(announced || begun.elapsed().as_micros() >= 2 * LATENCY_US);
            }
        }
    }
}
