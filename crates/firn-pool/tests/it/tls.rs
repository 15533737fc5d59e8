//! Nodes that speak TLS.

use crate::certificates::{CA, LOCKED_KEY, NODE_KEY, OPEN_KEY, OTHER, OTHER_KEY};
use crate::memcached::{Kind, Memcached, eventually};
use crate::nodes::{check, check_all, over, put};
use firn_pool::{Options, Pool, SystemLink, TlsFiles};
use std::sync::{Arc, Mutex};

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

/// A pool that is on does not reach its node, for a reason that has this text.
fn unreachable(link: Arc<SystemLink>, address: &str, reason: &str) {
    let log = Arc::new(Mutex::new(String::new()));
    let sink = log.clone();
    let sink = Arc::new(move |text: &str| sink.lock().unwrap().push_str(text));
    let pool = Pool::new(Options::new(1), link.clone(), link, sink).unwrap();
    pool.set_nodes(address).unwrap();
    pool.set_enabled(true);
    pool.start().unwrap();
    let why = || pool.stats().nodes[0].connect_error.clone();
    eventually("the reason is reported", || {
        assert!(pool.stats().nodes[0].breaker_open);
        let why = why();
        !why.is_empty() && why.contains(reason)
    });
    eventually("the reason is logged", || {
        let logged = log.lock().unwrap().clone();
        logged.contains("cannot be reached") && logged.contains(reason)
    });
    assert_eq!(pool.stats().nodes[0].limit_bytes, 0, "it has said nothing");
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
    // It can be reached by who trusts it.
    over(link(&files(&node)), &node.address(), Options::new(1));
    // Its authority is not the one that the files name.
    unreachable(link(&files(&stranger)), &node.address(), "not trusted");
    // Nor is it one of the system's.
    let system = TlsFiles {
        ca: None,
        ..files(&node)
    };
    unreachable(link(&system), &node.address(), "not trusted");
    unreachable(Arc::new(SystemLink::new()), &node.address(), "not trusted");
    // The certificate is for 127.0.0.1.
    let other_name = node.address().replace("127.0.0.1", "localhost");
    unreachable(link(&files(&node)), &other_name, "not trusted");
    // A node without TLS answers the handshake with an error of its own protocol.
    let plain = Memcached::start(Kind::Tcp, 64);
    let address = format!("tls:{}", plain.address());
    unreachable(link(&files(&node)), &address, "TLS");
}

/// The node of these tests asks for a certificate of its clients, as TLS 1.3 does: after they think
/// that they are connected.
#[test]
fn a_client_without_a_certificate_is_turned_away() {
    let node = Memcached::start(Kind::Tls, 64);
    over(link(&files(&node)), &node.address(), Options::new(1));
    let anonymous = TlsFiles {
        certificate: None,
        key: None,
        ..files(&node)
    };
    unreachable(link(&anonymous), &node.address(), "");
    // A certificate of another authority is none.
    let stranger = Memcached::start(Kind::Tls, 64);
    let foreign = TlsFiles {
        ca: files(&node).ca,
        ..files(&stranger)
    };
    unreachable(link(&foreign), &node.address(), "");
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
            "nothing': No such file",
        ),
        (
            TlsFiles {
                ca: path(NODE_KEY),
                ..good.clone()
            },
            "no certificate",
        ),
        (
            TlsFiles {
                key: path(NODE_KEY),
                ..good.clone()
            },
            "not the key of the certificate",
        ),
        (
            TlsFiles {
                certificate: path(NODE_KEY),
                ..good.clone()
            },
            "no certificate",
        ),
        (
            TlsFiles {
                key: None,
                ..good.clone()
            },
            "needs its private key",
        ),
        (
            TlsFiles {
                key: path(LOCKED_KEY),
                ..good.clone()
            },
            "without a password",
        ),
        (
            TlsFiles {
                key: path(OPEN_KEY),
                ..good
            },
            "chmod 600",
        ),
    ];
    for (files, part) in cases {
        let error = wrong(files);
        assert!(error.contains(part), "{error}");
    }
}
