//! Bit rot: the promises that must hold after one bit of a stored file flips.
//!
//! - The file is a blob file, or an SST without catalog entries: the database opens. Reads that
//!   the damage affects fail with an error that names the file; all other reads return the
//!   committed data, writes go on, and compactions that meet the damage lose no readable data.
//! - The file is an SST with catalog entries, the log, a manifest or `CURRENT`: the open may fail
//!   with an error that names the file; otherwise the database shows the state of one moment. Only
//!   a flip in the log may take it back before the last written moment: a damaged last group looks
//!   like a write that a power cut tore. The run counts these cases.
//! - No row is invented, changed, or silently lost anywhere else.

use crate::crash::failure_of;
use crate::failure::Failure;
use crate::world::{DIR, FlipOutcome, StepEnd, World};
use firn::base::options::CommitDurability;
use firn::env::{Env, MemEnv};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

/// Number of bits flipped in the files of one workload, each in a copy of its own.
const FLIPS: usize = 24;

/// Outcomes of the flips of some runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RotStats {
    /// Bits flipped.
    pub flips: u64,
    /// Opens that failed with an error that names the file.
    pub refused: u64,
    /// Databases that opened, and in which some read failed with an error that names the file.
    pub found: u64,
    /// Databases that opened, and in which every read was right.
    pub harmless: u64,
    /// Databases that opened at a moment before the last written one, after a flip in the log.
    pub shortened: u64,
}

impl RotStats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.flips += other.flips;
        self.refused += other.refused;
        self.found += other.found;
        self.harmless += other.harmless;
        self.shortened += other.shortened;
    }
}

/// Runs random work, then flips single bits in the stored files, each on its own copy.
///
/// # Errors
/// A [`Failure`] that describes the broken promise, with seed, file and bit.
pub fn rot_run(seed: u64) -> Result<RotStats, Failure> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x0b17);
    let mut world = World::new(seed, CommitDurability::Sync);
    let (image, of_catalog) = image(&mut world, &mut rng)
        .map_err(failure_of)
        .map_err(|failure| failure.within(format_args!("rot seed {seed}")))?;
    let mut stats = RotStats::default();
    for _ in 0..FLIPS {
        let env = image.kill();
        let Some((file, bit)) = flip(&env, &of_catalog, &mut rng) else {
            continue;
        };
        let of_rows = [".sst", ".blob"].iter().any(|end| file.ends_with(end));
        let may_refuse = !of_rows || of_catalog.contains(&file);
        let outcome = world.look_at_damage(env, &file, may_refuse);
        let outcome = outcome.map_err(failure_of).map_err(|failure| {
            failure.within(format_args!("rot seed {seed}, bit {bit} of {file}"))
        })?;
        stats.flips += 1;
        match outcome {
            FlipOutcome::Refused => stats.refused += 1,
            FlipOutcome::Found => stats.found += 1,
            FlipOutcome::Harmless => stats.harmless += 1,
            FlipOutcome::Shortened => stats.shortened += 1,
        }
    }
    Ok(stats)
}

/// Runs some work and returns the stored files, with the names of the SSTs that hold catalog
/// entries.
fn image(world: &mut World, rng: &mut StdRng) -> Result<(MemEnv, Vec<String>), StepEnd> {
    world.recover()?;
    world.steps(rng.random_range(50..400))?;
    // After a flipped bit in the log, the database may open at an earlier moment. The model has
    // states only since the last recovery. So do further random work until the model has the state
    // of each moment at which the database may open.
    for _ in 0..1000 {
        if world.knows_what_a_flip_may_leave() {
            break;
        }
        world.steps(1)?;
    }
    world.leave(rng.random())
}

/// Flips one bit of one file. Returns the file's name and the bit's number; `None` if the chosen
/// file is empty.
fn flip(env: &MemEnv, of_catalog: &[String], rng: &mut StdRng) -> Option<(String, u64)> {
    let names = env.list_dir(Path::new(DIR)).ok()?;
    // Half of the flips go to plain SSTs: a uniform choice would mostly hit files that the open
    // itself needs.
    let plain: Vec<&String> = names
        .iter()
        .filter(|name| name.ends_with(".sst") && !of_catalog.contains(name))
        .collect();
    let file = match plain.is_empty() || rng.random() {
        true => names[rng.random_range(0..names.len())].clone(),
        false => plain[rng.random_range(0..plain.len())].clone(),
    };
    let path = Path::new(DIR).join(&file);
    let len = env.read(&path).ok()?.len() as u64;
    if len == 0 {
        return None;
    }
    let bit = rng.random_range(0..len * 8);
    env.damage(&path, |bytes| bytes[(bit / 8) as usize] ^= 1 << (bit % 8))
        .ok()?;
    Some((file, bit))
}
