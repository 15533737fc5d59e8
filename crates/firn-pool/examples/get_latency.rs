//! How long a get of 16 KiB takes on loopback: `cargo run --release -p firn-pool --example
//! get_latency`. It starts a memcached of its own.
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.

use firn_pool::{Class, Name, Options, Pool, SystemLink, WantedBlock};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 1000;
const GETS: u64 = 50_000;
const LEN: usize = 16 << 10;
const FILE_READ: Duration = Duration::from_micros(120);
const PORT: &str = "21987";

fn main() {
    let user = std::env::var("USER").unwrap_or_else(|_| "root".into());
    let path = format!("{}:/usr/bin", std::env::var("PATH").unwrap_or_default());
    let mut node = Command::new("memcached")
        .env("PATH", path)
        .args([
            "-l",
            "127.0.0.1",
            "-p",
            PORT,
            "-m",
            "256",
            "-n",
            "2048",
            "-f",
            "1.07",
            "-u",
            &user,
        ])
        .stderr(Stdio::null())
        .spawn()
        .expect("memcached is missing: run scripts/deps.sh test");
    for (text, key) in [
        ("plain", None),
        ("encrypted", firn_pool::Key::parse(&"5a".repeat(32)).ok()),
    ] {
        let link = Arc::new(SystemLink::new());
        let options = Options {
            key,
            ..Options::new(1)
        };
        let pool =
            Pool::new(options, link.clone(), link, Arc::new(|_: &str| {})).expect("random bytes");
        pool.set_nodes(&format!("127.0.0.1:{PORT}"))
            .expect("the list is right");
        pool.set_enabled(true);
        pool.start().expect("a thread");
        while pool.stats().nodes[0].breaker_open {
            std::thread::sleep(Duration::from_millis(1));
        }
        let block = vec![7; LEN];
        let name = |n: u64| Name::of_block(n, 1, 0);
        for n in 0..BLOCKS {
            while !pool.put(&name(n), Class::Point, &block) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        while pool.stats().nodes[0].classes[Class::Point.index()].puts < BLOCKS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut times, mut misses) = (Vec::new(), 0);
        for n in 0..GETS {
            let wanted = WantedBlock {
                name: name(n % BLOCKS),
                len: LEN,
            };
            let start = Instant::now();
            match pool.get(&wanted, Class::Point, &|_| true) {
                Some(_) => times.push(start.elapsed().as_nanos() as f64 / 1000.0),
                // As long as a read of the file.
                None => {
                    misses += 1;
                    while start.elapsed() < FILE_READ {}
                }
            }
        }
        assert!(!times.is_empty(), "no get hit");
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[(share * (times.len() - 1) as f64) as usize];
        println!(
            "{text}: get of 16 KiB, us: p50 {:.1}, p95 {:.1}, p99 {:.1}; {misses} of {GETS} read from the file",
            at(0.5),
            at(0.95),
            at(0.99)
        );
    }
    let _ = node.kill();
    let _ = node.wait();
}
