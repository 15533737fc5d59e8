use crate::memcached::{Kind, Memcached, eventually};
use firn_pool::{Class, Name, Options, Pool, SplitMix64, SystemLink, WantedBlock};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn name(n: u64) -> Name {
    Name::of_block(n, 1, 4096)
}

/// From some bytes to 40 KiB, with everything that a protocol could stumble over.
fn content(n: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(n);
    let len = random.below(if n.is_multiple_of(50) {
        600_000
    } else {
        40_000
    }) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| random.draw() as u8).collect();
    if n.is_multiple_of(3) {
        bytes.extend_from_slice(b"\r\nMN\r\nVA 3 O1\r\n");
    }
    bytes
}

fn wanted(n: u64) -> WantedBlock {
    WantedBlock {
        name: name(n),
        len: content(n).len(),
    }
}

fn pool(nodes: &[&Memcached], options: Options) -> Pool {
    let list: Vec<String> = nodes.iter().map(|node| node.address()).collect();
    over(Arc::new(SystemLink::new()), &list.join(","), options)
}

/// A pool that is on and whose nodes answer.
pub fn over(link: Arc<SystemLink>, list: &str, options: Options) -> Pool {
    let pool = Pool::new(
        options,
        link.clone(),
        link,
        Arc::new(|message: &str| println!("{message}")),
    )
    .unwrap();
    pool.set_nodes(list).unwrap();
    pool.set_enabled(true);
    pool.start().unwrap();
    eventually("all nodes answer", || {
        pool.stats()
            .nodes
            .iter()
            .all(|node| !node.breaker_open && node.limit_bytes > 0)
    });
    pool
}

pub fn put(pool: &Pool, blocks: std::ops::Range<u64>) {
    for n in blocks {
        let content = content(n);
        eventually("the queue has room", || {
            pool.put(&name(n), Class::Point, &content)
        });
    }
    eventually("the queue is empty", || pool.stats().queued_puts == 0);
}

/// Asks until the answer is in time: on a busy machine some are late, and puts may be given up.
fn get_patiently(pool: &Pool, n: u64) {
    let expected = content(n);
    eventually("the block comes", || {
        match pool.get(&wanted(n), Class::Point, &|_| true) {
            Some(found) => {
                assert!(*found == expected, "block {n}");
                true
            }
            None => {
                if !pool.probably_has(&wanted(n)) {
                    pool.put(&name(n), Class::Point, &expected);
                }
                false
            }
        }
    });
}

/// Asks for all of these blocks, alone and in batches, until they come.
pub fn check_all(pool: &Pool, numbers: std::ops::Range<u64>) {
    numbers.clone().for_each(|n| get_patiently(pool, n));
    let mut left: Vec<u64> = numbers.collect();
    eventually("all blocks come in batches", || {
        let asked: Vec<_> = left.iter().map(|n| wanted(*n)).collect();
        let found = pool.get_many(&asked, Class::Scan, &|_, _| true);
        let came = |at: usize| found[at].as_deref().map(|b| b == content(left[at]));
        let results: Vec<_> = (0..left.len()).map(came).collect();
        assert!(!results.contains(&Some(false)));
        let mut results = results.into_iter();
        left.retain(|_| results.next().flatten().is_none());
        left.is_empty()
    });
}

/// Asks for these blocks once: those that come are right.
pub fn check(pool: &Pool, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let found = pool.get(&wanted(n), Class::Point, &|_| true);
        assert!(found.is_none_or(|found| *found == content(n)), "block {n}");
    }
}

fn lying(pool: &Pool) -> u64 {
    pool.stats()
        .nodes
        .iter()
        .flat_map(|node| &node.classes)
        .map(|class| class.lying)
        .sum()
}

#[test]
fn blocks_come_back_from_sockets_of_both_kinds_plain_and_encrypted() {
    let key = || firn_pool::Key::parse(&"c7".repeat(32)).ok();
    for (kind, key) in [(Kind::Tcp, None), (Kind::Unix, None), (Kind::Tcp, key())] {
        let nodes = [Memcached::start(kind, 64), Memcached::start(kind, 64)];
        let pool = pool(
            &[&nodes[0], &nodes[1]],
            Options {
                key,
                ..Options::new(1)
            },
        );
        put(&pool, 0..300);
        check_all(&pool, 0..300);
        for n in 0..100 {
            pool.delete(&name(n), Class::Point);
        }
        eventually("the deletions are sent", || pool.stats().queued_puts == 0);
        assert!((0..100).all(|n| pool.get(&wanted(n), Class::Point, &|_| true).is_none()));
        assert_eq!(lying(&pool), 0);
        pool.stop();
    }
}

/// A deletion is quiet in all cases, and really deletes.
#[test]
fn another_server_does_not_find_what_was_deleted() {
    let node = Memcached::start(Kind::Tcp, 64);
    let (one, other) = (
        pool(
            &[&node],
            Options {
                server: 1,
                ..Options::new(1)
            },
        ),
        pool(
            &[&node],
            Options {
                server: 2,
                ..Options::new(1)
            },
        ),
    );
    put(&one, 1..40);
    (1..40).for_each(|n| get_patiently(&one, n));
    (1..40).for_each(|n| {
        eventually("news arrive", || other.probably_has(&wanted(n)));
        get_patiently(&other, n);
    });
    (1..40).for_each(|n| one.delete(&name(n), Class::Point));
    (1..40).for_each(|n| {
        eventually("it is gone", || {
            other.get(&wanted(n), Class::Point, &|_| true).is_none()
                && !other.probably_has(&wanted(n))
        });
    });
    assert_eq!(lying(&other), 0);
}

#[test]
fn a_killed_node_is_left_alone_until_it_is_back() {
    let (mut node, stays) = (
        Memcached::start(Kind::Tcp, 64),
        Memcached::start(Kind::Tcp, 64),
    );
    let pool = pool(&[&node, &stays], Options::new(1));
    put(&pool, 0..200);
    node.kill();
    eventually("the breaker opens", || {
        (0..200).for_each(|n| drop(pool.get(&wanted(n), Class::Point, &|_| true)));
        pool.stats().nodes[0].breaker_open
    });
    assert!(pool.stats().nodes[0].classes[Class::Point.index()].broken <= 7);
    node.restart();
    eventually("the breaker closes", || !pool.stats().nodes[0].breaker_open);
    put(&pool, 0..200);
    (0..200).for_each(|n| get_patiently(&pool, n));
    assert_eq!(lying(&pool), 0);
}

#[test]
fn a_stopped_node_is_left_alone_until_it_goes_on() {
    let node = Memcached::start(Kind::Tcp, 64);
    let pool = pool(&[&node], Options::new(1));
    put(&pool, 0..100);
    (0..100).for_each(|n| get_patiently(&pool, n));
    node.signal(Signal::STOP);
    eventually("the breaker opens", || {
        (0..100).for_each(|n| drop(pool.get(&wanted(n), Class::Point, &|_| true)));
        pool.stats().nodes[0].breaker_open
    });
    let late = |pool: &Pool| pool.stats().nodes[0].classes[Class::Point.index()].late;
    let before = late(&pool);
    (0..100).for_each(|n| assert!(pool.get(&wanted(n), Class::Point, &|_| true).is_none()));
    assert_eq!(late(&pool), before, "an open breaker asks nothing");
    node.signal(Signal::CONT);
    (0..100).for_each(|n| get_patiently(&pool, n));
    assert_eq!(lying(&pool), 0);
}

#[test]
fn a_full_node_evicts_and_stays_right() {
    let node = Memcached::start(Kind::Unix, 8);
    let pool = pool(&[&node], Options::new(1));
    eventually("the node evicts", || {
        put(&pool, 0..1000);
        pool.stats().nodes[0].evictions > 0
    });
    // What is left is found, sooner or later, and is right.
    let mut found = std::collections::BTreeSet::new();
    eventually("blocks are left", || {
        for n in 0..1000 {
            if let Some(block) = pool.get(&wanted(n), Class::Point, &|_| true) {
                assert!(*block == content(n), "block {n}");
                found.insert(n);
            }
        }
        found.len() > 20
    });
    assert!(
        found.len() < 900,
        "{} blocks of 20 KiB in 8 MiB",
        found.len()
    );

    assert_eq!(lying(&pool), 0);
}

/// Many threads share few connections while the node stops and goes on: the late answers of one
/// are never another's.
#[test]
fn threads_get_right_bytes_while_the_node_hangs_now_and_then() {
    let node = Memcached::start(Kind::Tcp, 64);
    let pool = pool(&[&node], Options::new(1));
    (1..50).for_each(|n| get_patiently(&pool, n));
    let hits = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (pool, hits, done) = (&pool, &hits, &done);
            scope.spawn(move || {
                let mut random = SplitMix64::new(thread);
                while done.load(Relaxed) == 0 {
                    let n = 1 + random.below(49);
                    if let Some(found) = pool.get(&wanted(n), Class::Point, &|_| true) {
                        assert!(*found == content(n), "block {n}");
                        hits.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        for _ in 0..5 {
            let goal = hits.load(Relaxed) + 50;
            eventually("threads hit", || hits.load(Relaxed) >= goal);
            node.signal(Signal::STOP);
            std::thread::sleep(std::time::Duration::from_millis(3));
            node.signal(Signal::CONT);
        }
        done.store(1, Relaxed);
    });
    assert_eq!(lying(&pool), 0);
}
