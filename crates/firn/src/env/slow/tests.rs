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
        iops: Some(3000),
        bytes_per_s: Some(125_000_000),
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
        "0us",
        "-1us",
        "120 us",
        "120us,",
        "120us,130us",
        "1ms",
        "120US",
        "3000iops,",
        "1MB",
        "11000000us",
        "99999999999999999999us",
        "٣us",
    ] {
        let error = text.parse::<DiskSpeed>().unwrap_err();
        assert!(error.to_string().contains("'120us'"), "{text}: {error}");
    }
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
