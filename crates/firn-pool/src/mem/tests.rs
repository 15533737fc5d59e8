use super::*;

const NODE: &str = "node:1";

fn network() -> (MemPool, Box<dyn Socket>) {
    let network = MemPool::new(1);
    network.start(NODE, 1000);
    let socket = network.connect(&Address::Tcp("node".into(), 1), 0).unwrap();
    (network, socket)
}

fn ask(socket: &mut dyn Socket, request: &str) -> String {
    socket.write_all(request.as_bytes(), u64::MAX).unwrap();
    let mut answer = Vec::new();
    while socket
        .wait_readable(u64::MAX - 1)
        .is_ok_and(|readable| readable)
    {
        let mut bytes = [0; 100];
        match socket.try_read(&mut bytes) {
            Ok(Some(count)) => answer.extend_from_slice(&bytes[..count]),
            _ => break,
        }
        if answer.ends_with(b"MN\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_node_answers_as_memcached_does() {
    let (network, mut socket) = network();
    assert_eq!(ask(&mut *socket, "ms a 2 b q\r\nxy\r\nmn\r\n"), "MN\r\n");
    assert_eq!(
        ask(&mut *socket, "mg a b v q O5\r\nmg b b v q O6\r\nmn\r\n"),
        "VA 2 O5\r\nxy\r\nMN\r\n"
    );
    assert_eq!(
        ask(&mut *socket, "md a b q\r\nmg a b v q O5\r\nmn\r\n"),
        "MN\r\n"
    );
    assert_eq!(ask(&mut *socket, "ms t 1 b q T2\r\nz\r\nmn\r\n"), "MN\r\n");
    network.advance(1_900_000);
    assert_eq!(
        ask(&mut *socket, "mg t b v q O1\r\nmn\r\n"),
        "VA 1 O1\r\nz\r\nMN\r\n"
    );
    network.advance(200_000);
    assert_eq!(ask(&mut *socket, "mg t b v q O1\r\nmn\r\n"), "MN\r\n");
}

#[test]
fn a_full_node_evicts_what_was_not_used_for_longest() {
    let (network, mut socket) = network();
    for key in ["a", "b", "c", "d", "e"] {
        ask(
            &mut *socket,
            &format!("ms {key} 120 b q\r\n{}\r\nmn\r\n", "x".repeat(120)),
        );
        ask(&mut *socket, "mg a b v q O1\r\nmn\r\n");
    }
    assert!(network.items(NODE) == 5 && network.gets(NODE) == 5);
    ask(
        &mut *socket,
        &format!("ms f 120 b q\r\n{}\r\nmn\r\n", "x".repeat(120)),
    );
    assert_eq!(ask(&mut *socket, "mg b b v q O1\r\nmn\r\n"), "MN\r\n");
    assert!(ask(&mut *socket, "mg a b v q O1\r\nmn\r\n").starts_with("VA"));
    let refused = ask(
        &mut *socket,
        &format!("ms g 1000 b q\r\n{}\r\nmn\r\n", "x".repeat(1000)),
    );
    assert!(refused.starts_with("SERVER_ERROR"));
}

#[test]
fn a_killed_node_resets_and_a_stopped_one_keeps_silent() {
    let (network, mut socket) = network();
    network.stop(NODE);
    socket.write_all(b"mn\r\n", u64::MAX).unwrap();
    let now_us = network.now_us();
    assert!(!socket.wait_readable(now_us + 500).unwrap());
    assert_eq!(network.now_us(), now_us + 500);
    network.resume(NODE);
    assert_eq!(ask(&mut *socket, ""), "MN\r\n");
    network.kill(NODE);
    assert!(socket.write_all(b"mn\r\n", u64::MAX).is_err());
    assert!(socket.try_read(&mut [0; 9]).is_err());
    assert!(network.connect(&Address::Tcp("node".into(), 1), 0).is_err());
}
