//! The simulated twins: a store with faults, local files that crash, a virtual clock, and jobs that
//! run when the test says so. All depend on their seeds only.

mod clock;
mod faults;
mod files;
mod hooked_files;
mod jobs;
mod objects;

pub use clock::VirtualClock;
pub use faults::Faults;
pub use files::MemFiles;
pub use hooked_files::HookedFiles;
pub use jobs::QueuedJobs;
pub use objects::MemObjects;

/// How many seeds a test runs: `FIRN_SEEDS`, or the number given.
#[cfg(test)]
pub(crate) fn seeds(usual: u64) -> u64 {
    let named = std::env::var("FIRN_SEEDS").ok();
    named.and_then(|named| named.parse().ok()).unwrap_or(usual)
}

#[cfg(test)]
mod tests;
