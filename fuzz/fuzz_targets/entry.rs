#![no_main]

#[allow(dead_code)] // The seeds are for the stable tests.
#[path = "../targets/entry.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
