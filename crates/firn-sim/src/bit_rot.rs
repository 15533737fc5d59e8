//! Bit rot: one flipped bit in a stored file, and what must hold then.
//!
//! - The file is an SST without entries of the catalog: the database opens. What the damage touches
//!   fails with an error that names the file; everything else reads as committed, writes go on, and
//!   a compaction that meets the damage changes nothing that could be read before.
//! - The file is the log or a manifest: the database opens with a state that was, or refuses to
//!   open with an error that names the file. What is missing then is counted: a flip in the last
//!   group of the log cannot be told from a write that a power cut tore.
//! - Never is a row invented, changed or lost in silence elsewhere.

use crate::crash::failure_of;
use crate::failure::Failure;
use crate::world::{DIR, StepEnd, World};
use firn::base::options::CommitDurability;
use firn::env::{Env, MemEnv};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

/// Flips tried on one workload.
const FLIPS: usize = 24;

/// What the flips of some runs led to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RotStats {
    /// Bits flipped.
    pub flips: u64,
    /// Opens refused, naming the file.
    pub refused: u64,
    /// Databases opened in which some read failed, naming the file.
    pub found: u64,
    /// Databases opened in which every read was right: the bit had no meaning.
    pub harmless: u64,
    /// Databases opened at an earlier moment, the flip being in the end of the log.
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

/// What one flip led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The open failed, naming the file.
    Refused,
    /// Some read failed, naming the file.
    Found,
    /// All is there.
    Harmless,
    /// All is there as of an earlier moment.
    Shortened,
}

/// Random work, then single flips in the files it left, each on a copy of its own.
///
/// # Errors
/// The promise that was broken, with seed, file and bit.
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
            Outcome::Refused => stats.refused += 1,
            Outcome::Found => stats.found += 1,
            Outcome::Harmless => stats.harmless += 1,
            Outcome::Shortened => stats.shortened += 1,
        }
    }
    Ok(stats)
}

/// The files that some work leaves.
fn image(world: &mut World, rng: &mut StdRng) -> Result<(MemEnv, Vec<String>), StepEnd> {
    world.recover()?;
    world.steps(rng.random_range(50..400))?;
    // A flip may take the last moments: the model must still know the ones before.
    for _ in 0..1000 {
        if world.knows_what_a_flip_may_leave() {
            break;
        }
        world.steps(1)?;
    }
    world.leave(rng.random())
}

/// Flips one bit of one file.
fn flip(env: &MemEnv, of_catalog: &[String], rng: &mut StdRng) -> Option<(String, u64)> {
    let names = env.list_dir(Path::new(DIR)).ok()?;
    // Without this most flips would hit what nothing can be read without.
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
