//! Runs the fuzz targets of `fuzz/` over seeded mutations of valid inputs, so that every test run
//! exercises the decoders without a fuzzer.

#[allow(dead_code)]
#[path = "../../../../fuzz/targets/manifest.rs"]
mod manifest;

#[allow(dead_code)]
#[path = "../../../../fuzz/targets/wal_replay.rs"]
mod wal_replay;

#[allow(dead_code)]
#[path = "../../../../fuzz/targets/sst_open.rs"]
mod sst_open;

#[allow(dead_code)]
#[path = "../../../../fuzz/targets/entry.rs"]
mod entry;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs each input of `seeds`, and `rounds` mutations of it.
fn exercise(seeds: &[Vec<u8>], rounds: u64, run: fn(&[u8])) {
    for (at, seed) in seeds.iter().enumerate() {
        run(seed);
        for round in 0..rounds {
            let input = mutated(seed, round);
            if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
                panic!("input {at}, round {round} failed");
            }
        }
    }
}

/// Applies one to four changes: flips a bit, replaces a byte, copies, removes or zeroes a run of
/// bytes, or cuts the end off.
fn mutated(input: &[u8], round: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(round);
    let mut bytes = input.to_vec();
    for _ in 0..rng.random_range(1..5) {
        if bytes.len() < 2 {
            break;
        }
        // Keep the first byte, which in many targets selects the meaning of the others.
        let at = rng.random_range(1..bytes.len());
        let len = rng.random_range(1..=(bytes.len() - at).min(5000));
        match rng.random_range(0..6) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => {
                let to = rng.random_range(1..=bytes.len() - len);
                bytes.copy_within(at..at + len, to);
            }
            3 => drop(bytes.drain(at..at + len)),
            4 => bytes[at..at + len].fill(0),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

#[test]
fn wal_replay_answers_or_refuses() {
    exercise(&wal_replay::seeds(), 700, wal_replay::run);
}

#[test]
fn manifests_are_opened_or_refused() {
    exercise(&manifest::seeds(), 2000, manifest::run);
}

#[test]
fn sst_open_answers_or_refuses() {
    exercise(&sst_open::seeds(), 300, sst_open::run);
}

#[test]
fn entries_are_decoded_or_refused() {
    exercise(&entry::seeds(), 5000, entry::run);
}
