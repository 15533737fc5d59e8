//! Nodes that speak TLS.

use crate::certificates::{CA, NODE, NODE_KEY, OTHER, OTHER_KEY};
use crate::memcached::{Kind, Memcached, eventually};
use crate::nodes::{check, check_all, over, put};
use firn_pool::{Options, Pool, SystemLink, TlsFiles};
use std::sync::Arc;

fn files(node: &Memcached) -> TlsFiles {
    let path = |name: &str| Some(node.directory().join(name));
    TlsFiles {
        ca: path(CA),
        certificate: path(OTHER),
        key: path(OTHER_KEY),
    }
}

fn link(files: &TlsFiles) -> Arc<SystemLink> {
    Arc::new(SystemLink::with_tls(files).unwrap())
}

/// A pool that is on and does not reach its node. Returns why, as it reports that.
fn unreachable(link: Arc<SystemLink>, address: &str) -> String {
    let pool = Pool::new(Options::new(1), link.clone(), link, Arc::new(|_: &str| ())).unwrap();
    pool.set_nodes(address).unwrap();
    pool.set_enabled(true);
    pool.start().unwrap();
    let error = || pool.stats().nodes[0].connect_error.clone();
    // Before the name is resolved there is no address.
    let failed = |error: &str| !error.is_empty() && !error.contains("no address yet");
    eventually("a connection fails", || failed(&error()));
    assert!(pool.stats().nodes[0].breaker_open);
    error()
}

#[test]
fn blocks_come_back_by_tls() {
    let node = Memcached::start(Kind::Tls, 64);
    let pool = over(link(&files(&node)), &node.address(), Options::new(1));
    put(&pool, 0..300);
    check_all(&pool, 0..300);
    assert_eq!(pool.stats().nodes[0].connect_error, "");
}

#[test]
fn a_node_that_dies_comes_back_by_tls() {
    let mut node = Memcached::start(Kind::Tls, 64);
    let pool = over(link(&files(&node)), &node.address(), Options::new(1));
    put(&pool, 0..50);
    node.kill();
    eventually("nobody asks it", || {
        check(&pool, 0..50);
        pool.stats().nodes[0].breaker_open
    });
    node.restart();
    eventually("it is asked again", || !pool.stats().nodes[0].breaker_open);
    put(&pool, 0..50);
    check_all(&pool, 0..50);
}

#[test]
fn a_node_is_trusted_by_its_certificate_alone() {
    let node = Memcached::start(Kind::Tls, 64);
    let stranger = Memcached::start(Kind::Tls, 64);
    // Its authority is not the one that the files name.
    let error = unreachable(link(&files(&stranger)), &node.address());
    assert!(error.contains("not trusted"), "{error}");
    // Nor is it one of the system's.
    let system = TlsFiles {
        ca: None,
        ..files(&node)
    };
    let error = unreachable(link(&system), &node.address());
    assert!(error.contains("not trusted"), "{error}");
    // The certificate is for 127.0.0.1.
    let other_name = node.address().replace("127.0.0.1", "localhost");
    let error = unreachable(link(&files(&node)), &other_name);
    assert!(error.contains("not trusted"), "{error}");
    // A node without TLS.
    let plain = Memcached::start(Kind::Tcp, 64);
    unreachable(link(&files(&node)), &format!("tls:{}", plain.address()));
    // No TLS was set up.
    let error = unreachable(Arc::new(SystemLink::new()), &node.address());
    assert!(error.contains("TLS is not set up"), "{error}");
}

/// The node of these tests asks for a certificate of its clients, as TLS 1.3 does: after they think
/// that they are connected.
#[test]
fn a_client_without_a_certificate_is_turned_away() {
    let node = Memcached::start(Kind::Tls, 64);
    let anonymous = TlsFiles {
        certificate: None,
        key: None,
        ..files(&node)
    };
    let link = link(&anonymous);
    let pool = Pool::new(Options::new(1), link.clone(), link, Arc::new(|_: &str| ())).unwrap();
    pool.set_nodes(&node.address()).unwrap();
    pool.set_enabled(true);
    pool.start().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let stats = pool.stats();
    assert!(stats.nodes[0].breaker_open);
    assert_eq!(stats.nodes[0].limit_bytes, 0, "it has said nothing");
}

#[test]
fn files_that_are_wrong_say_so() {
    let node = Memcached::start(Kind::Tls, 64);
    let good = files(&node);
    let path = |name: &str| Some(node.directory().join(name));
    let wrong = |files: TlsFiles| SystemLink::with_tls(&files).err().unwrap();
    let cases = [
        (
            TlsFiles {
                ca: path("nothing"),
                ..good.clone()
            },
            "nothing",
        ),
        (
            TlsFiles {
                ca: path(NODE_KEY),
                ..good.clone()
            },
            "authorities",
        ),
        (
            TlsFiles {
                key: path(NODE_KEY),
                ..good.clone()
            },
            "key",
        ),
        (
            TlsFiles {
                certificate: path(NODE_KEY),
                ..good.clone()
            },
            "certificate",
        ),
        (
            TlsFiles {
                key: None,
                ..good.clone()
            },
            "private key",
        ),
        (
            TlsFiles {
                key: path(NODE),
                ..good
            },
            "private key",
        ),
    ];
    for (files, part) in cases {
        let error = wrong(files);
        assert!(error.contains(part), "{error}");
    }
}
