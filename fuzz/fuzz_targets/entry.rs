#![no_main]

#[allow(dead_code)] // Only the stable tests use the seeds.
#[path = "../targets/entry.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::run(data));
