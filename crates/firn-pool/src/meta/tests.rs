use super::*;
use crate::random::SplitMix64;

const SEEDS: u64 = 3000;

fn value(opaque: u64, value: &[u8]) -> Answer<'_> {
    Answer::Value { opaque, value }
}

/// A stream of answers as a node sends it, and the answers in it.
fn stream(random: &mut SplitMix64) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for opaque in 1..=random.below(6) {
        let len = random.below(300) as usize;
        // Values may contain what looks like answers.
        let value: Vec<u8> = b"\r\nMN\r\nVA 3 O1\r\n"
            .iter()
            .copied()
            .cycle()
            .take(len)
            .collect();
        write!(bytes, "VA {len} O{opaque}\r\n").unwrap();
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\n");
        values.push((opaque, value));
    }
    bytes.extend_from_slice(b"MN\r\n");
    (bytes, values)
}

/// Everything up to the end of the batch, `None` if it does not parse to there.
fn read_batch(mut bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut values = Vec::new();
    loop {
        match parse(bytes, VALUE_LEN_MAX) {
            Parsed::Answer(Answer::Value { opaque, value }, len) => {
                values.push((opaque, value.to_vec()));
                bytes = &bytes[len..];
            }
            Parsed::Answer(Answer::EndOfBatch, _) => return Some(values),
            _ => return None,
        }
    }
}

#[test]
fn commands_are_those_of_the_protocol() {
    let name = Name::of_block(1, 2, 3);
    let mut base64 = Vec::new();
    name.write_base64(&mut base64);
    let base64 = String::from_utf8(base64).unwrap();
    let mut out = Vec::new();
    write_get(&mut out, &name, 9);
    let mut commands = Commands::default();
    commands.put(&name, 0, b"ab");
    commands.put(&name, 600, b"");
    commands.delete(&name);
    assert_eq!(commands.puts(), 2);
    out.extend_from_slice(commands.bytes());
    let expected = format!(
        "mg {base64} b v q O9\r\nms {base64} 2 b q\r\nab\r\nms {base64} 0 b q T600\r\n\r\nmd {base64} b q\r\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn each_answer_is_recognized() {
    let cases: [(&[u8], Answer); 8] = [
        (b"VA 2 O17\r\n\r\n\r\n", value(17, b"\r\n")),
        (b"VA 0 O0\r\n\r\n", value(0, b"")),
        (b"MN\r\n", Answer::EndOfBatch),
        (b"NS\r\n", Answer::NotTaken),
        (
            b"SERVER_ERROR out of memory storing object\r\n",
            Answer::NotTaken,
        ),
        (
            b"SERVER_ERROR Out of memory during read\r\n",
            Answer::NotTaken,
        ),
        (
            b"STAT limit_maxbytes 67108864\r\n",
            Answer::Counter("limit_maxbytes", "67108864"),
        ),
        (b"END\r\n", Answer::EndOfCounters),
    ];
    for (bytes, answer) in cases {
        assert_eq!(
            parse(bytes, VALUE_LEN_MAX),
            Parsed::Answer(answer, bytes.len())
        );
    }
}

#[test]
fn anything_else_is_bad() {
    let long = vec![b'x'; 512];
    let huge = format!("VA {} O1\r\n", VALUE_LEN_MAX + 1);
    let cases: [&[u8]; 16] = [
        b"EN\r\n",
        b"HD\r\n",
        b"MN\n",
        b"\r\n",
        b"MN \r\n",
        b"ERROR\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"VA 2\r\nab\r\n",
        b"VA 2 O1 O2\r\nab\r\n",
        b"VA -2 O1\r\nab\r\n",
        b"VA +2 O1\r\nab\r\n",
        b"VA 02 O1\r\nab\r\n",
        b"VA 2 O1\r\nabc\r\n",
        b"VA 99999999999999999999 O1\r\n",
        &long,
        huge.as_bytes(),
    ];
    for bytes in cases {
        assert_eq!(
            parse(bytes, VALUE_LEN_MAX),
            Parsed::Bad,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn every_truncation_is_incomplete_and_no_more_than_announced_is_needed() {
    for seed in 0..50 {
        let (bytes, values) = stream(&mut SplitMix64::new(seed));
        assert_eq!(read_batch(&bytes), Some(values), "seed {seed}");
        for len in 0..bytes.len() {
            let mut rest = &bytes[..len];
            loop {
                match parse(rest, VALUE_LEN_MAX) {
                    Parsed::Answer(_, used) => rest = &rest[used..],
                    Parsed::Incomplete(needed) => {
                        assert!(needed > rest.len(), "seed {seed}, {len} bytes");
                        break;
                    }
                    Parsed::Bad => panic!("seed {seed}: {len} bytes are bad"),
                }
            }
        }
    }
}

/// Random bytes, and streams with some bytes changed: the parser neither panics nor goes on for
/// ever, and what it takes lies inside of the bytes.
#[test]
fn damaged_bytes_do_no_harm() {
    let words: [&[u8]; 8] = [
        b"VA ",
        b" O",
        b"\r\n",
        b"MN\r\n",
        b"18446744073709551615",
        b"7",
        b"STAT a ",
        b"END\r\n",
    ];
    for seed in 0..SEEDS {
        let mut random = SplitMix64::new(seed);
        let mut bytes = match random.below(3) {
            0 => (0..random.below(700))
                .map(|_| random.draw() as u8)
                .collect(),
            1 => (0..random.below(60))
                .flat_map(|_| words[random.below(words.len() as u64) as usize].to_vec())
                .collect(),
            _ => stream(&mut random).0,
        };
        for _ in 0..random.below(4) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.draw() as u8;
            }
        }
        let mut rest = &bytes[..];
        while let Parsed::Answer(answer, used) = parse(rest, VALUE_LEN_MAX) {
            assert!(used > 0 && used <= rest.len(), "seed {seed}");
            if let Answer::Value { value, .. } = answer {
                assert!(value.len() < used, "seed {seed}");
            }
            rest = &rest[used..];
        }
    }
}

#[test]
fn a_value_that_is_longer_than_announced_is_bad_before_it_is_there() {
    assert_eq!(parse(b"VA 101 O1\r\n", 100), Parsed::Bad);
    assert!(matches!(
        parse(b"VA 100 O1\r\n", 100),
        Parsed::Incomplete(113)
    ));
}

#[test]
fn a_piece_is_one_put_or_few_deletions_and_all_are_the_batch() {
    let name = Name::of_block(1, 2, 3);
    let mut random = SplitMix64::new(4);
    let mut commands = Commands::default();
    let mut puts = 0;
    for _ in 0..3000 {
        match random.below(10) {
            0 => {
                let value = vec![7; random.below(5000) as usize];
                commands.put(&name, 0, &value);
                puts += 1;
            }
            _ => commands.delete(&name),
        }
    }
    commands.end();
    assert_eq!(commands.puts(), puts);
    let mut seen = Vec::new();
    for piece in commands.pieces() {
        seen.extend_from_slice(piece);
        assert!(piece.ends_with(b"\r\n"));
        let put = piece.starts_with(b"ms ");
        let deletes = piece.windows(3).filter(|bytes| *bytes == b"md ").count();
        assert!(put && deletes == 0 || !put && piece.len() < PIECE_BYTES + 100);
    }
    assert_eq!(seen, commands.bytes());
    assert_eq!(commands.pieces().last(), Some(END_OF_BATCH));
    let deletes = commands.pieces().filter(|piece| piece.starts_with(b"md "));
    assert!(deletes.map(<[u8]>::len).max().unwrap() > 100, "many in one");
}
