use super::*;
use crate::mem::MemPool;
use std::collections::VecDeque;
use std::io;

/// A socket whose answers are written down; it has nothing more to say behind them.
#[derive(Default)]
struct Script(VecDeque<Vec<u8>>);

impl Socket for Script {
    fn write_all(&mut self, _bytes: &[u8], _deadline_us: u64) -> io::Result<()> {
        Ok(())
    }
    fn try_read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(mut bytes) = self.0.pop_front() else {
            return Ok(None);
        };
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = bytes.split_off(bytes.len().min(into.len()));
        into[..bytes.len()].copy_from_slice(&bytes);
        if !rest.is_empty() {
            self.0.push_front(rest);
        }
        Ok(Some(bytes.len()))
    }
    fn wait_readable(&mut self, _deadline_us: u64) -> io::Result<bool> {
        Ok(!self.0.is_empty())
    }
}

fn connection(chunks: &[&[u8]]) -> Connection {
    Connection::new(Box::new(Script(
        chunks.iter().map(|chunk| chunk.to_vec()).collect(),
    )))
}

fn ask(connection: &mut Connection, names: u64) -> bool {
    let names: Vec<Name> = (0..names).map(|n| Name::of_block(n, 0, 0)).collect();
    connection.send_gets(names.iter(), 100, u64::MAX)
}

fn receive(connection: &mut Connection) -> (Received, Vec<(usize, Vec<u8>)>) {
    let mut values = Vec::new();
    let wait = Wait {
        poll_until_us: 0,
        deadline_us: u64::MAX,
    };
    let received = connection.receive(&MemPool::new(1), wait, &mut |index, answer| {
        if let Answer::Value { value, .. } = answer {
            values.push((index, value.to_vec()));
        }
    });
    (received, values)
}

#[test]
fn values_have_the_indexes_of_their_names() {
    let mut connection =
        connection(&[b"VA 1 O2\r\nb\r\nVA 1 O3\r\nc\r\nMN\r\n", b"MN\r\nVA", b"x"]);
    assert!(ask(&mut connection, 3));
    let expected = vec![(1, b"b".to_vec()), (2, b"c".to_vec())];
    assert_eq!(receive(&mut connection), (Received::Ended, expected));
}

#[test]
fn answers_may_come_byte_by_byte() {
    let bytes = b"VA 3 O1\r\n\r\nM\r\nVA 0 O2\r\n\r\nMN\r\n";
    let chunks: Vec<&[u8]> = bytes.chunks(1).collect();
    let mut connection = connection(&chunks);
    assert!(ask(&mut connection, 2));
    let expected = vec![(0, b"\r\nM".to_vec()), (1, Vec::new())];
    assert_eq!(receive(&mut connection), (Received::Ended, expected));
}

/// The classic error: the answer to the first request is taken for the one to the second.
#[test]
fn a_late_answer_is_never_the_next_requests() {
    let mut connection = connection(&[]);
    assert!(ask(&mut connection, 1));
    assert_eq!(receive(&mut connection), (Received::Late, vec![]));
    assert!(!ask(&mut connection, 1), "a batch is pending");
    // Even if it were asked again, the token tells the answers apart.
    connection.pending = None;
    assert!(ask(&mut connection, 1));
    connection.socket = Box::new(Script([b"VA 1 O1\r\na\r\nMN\r\n".to_vec()].into()));
    assert_eq!(receive(&mut connection), (Received::Broken, vec![]));
}

#[test]
fn a_drained_connection_is_as_good_as_new() {
    let mut connection = connection(&[b"VA 9 O1\r\nfirst"]);
    assert!(ask(&mut connection, 1));
    assert_eq!(receive(&mut connection), (Received::Late, vec![]));
    connection.socket = Box::new(Script([b" one\r\nMN\r\n".to_vec()].into()));
    assert_eq!(receive(&mut connection).0, Received::Ended);
    assert!(ask(&mut connection, 1));
    connection.socket = Box::new(Script([b"VA 1 O2\r\nb\r\nMN\r\n".to_vec()].into()));
    assert_eq!(
        receive(&mut connection),
        (Received::Ended, vec![(0, b"b".to_vec())])
    );
}

#[test]
fn what_nobody_asked_for_breaks_the_connection() {
    let cases: [&[u8]; 10] = [
        b"",
        b"EN\r\n",
        b"MN\r\nMN\r\n",
        b"MN\r\nVA 1 O1\r\na\r\n",
        b"VA 1 O0\r\na\r\nMN\r\n",
        b"VA 1 O3\r\na\r\nMN\r\n",
        b"VA 1 O1\r\na\r\nVA 1 O1\r\na\r\nMN\r\n",
        b"VA 1 O2\r\nb\r\nVA 1 O1\r\na\r\nMN\r\n",
        b"NS\r\nMN\r\n",
        b"END\r\n",
    ];
    for bytes in cases {
        let mut connection = connection(&[bytes]);
        assert!(ask(&mut connection, 2));
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(receive(&mut connection).0, Received::Broken, "{text:?}");
    }
}

fn two_puts() -> Commands {
    let mut commands = Commands::default();
    let name = Name::of_block(1, 2, 3);
    commands.put(&name, 0, b"a");
    commands.put(&name, 0, b"b");
    commands
}

#[test]
fn puts_and_counters_have_answers_of_their_own() {
    let mut puts = connection(&[b"NS\r\nSERVER_ERROR out of memory storing object\r\nMN\r\n"]);
    assert!(puts.send_puts(two_puts(), u64::MAX));
    let wait = Wait {
        poll_until_us: 0,
        deadline_us: u64::MAX,
    };
    let mut refused = 0;
    let received = puts.receive(&MemPool::new(1), wait, &mut |_, _| refused += 1);
    assert_eq!((received, refused), (Received::Ended, 2));
    let mut counters = connection(&[b"STAT bytes 7\r\nEND\r\n"]);
    assert!(counters.send_stats(u64::MAX));
    assert_eq!(receive(&mut counters).0, Received::Ended);
    assert!(counters.send_stats(u64::MAX));
    assert_eq!(
        receive(&mut connection(&[b"MN\r\n"])).0,
        Received::Broken,
        "no batch is pending"
    );
}

/// Ends only because somebody looks at the clock, or counts.
#[test]
fn a_flood_ends_at_the_deadline() {
    let flood =
        |bytes: &[u8]| Box::new(Script(std::iter::repeat_n(bytes.to_vec(), 5000).collect()));
    let clock = MemPool::new(1);
    let wait = Wait {
        poll_until_us: 0,
        deadline_us: clock.now_us(),
    };
    let mut connection = Connection::new(flood(b"STAT a b\r\n"));
    assert!(connection.send_stats(u64::MAX));
    let mut counters = 0;
    assert_eq!(
        connection.receive(&clock, wait, &mut |_, _| counters += 1),
        Received::Late
    );
    assert_eq!(counters, 1, "one read a call is allowed after the deadline");
    let wait = Wait {
        deadline_us: u64::MAX,
        ..wait
    };
    assert_eq!(
        connection.receive(&clock, wait, &mut |_, _| counters += 1),
        Received::Broken
    );
    assert_eq!(counters, COUNTERS_MAX);
    let mut connection = Connection::new(flood(b"NS\r\n"));
    let mut puts = Commands::default();
    let name = Name::of_block(1, 2, 3);
    (0..7).for_each(|_| puts.put(&name, 0, b"a"));
    assert!(connection.send_puts(puts, u64::MAX));
    let mut refused = 0;
    assert_eq!(
        connection.receive(&clock, wait, &mut |_, _| refused += 1),
        Received::Broken
    );
    assert_eq!(refused, 7);
}
