//! The compaction picker without files: the costs of its decisions in the long run
//! ([`workloads`]), and the throughput of writers at full speed beside it ([`closed_loop`]).

pub mod closed_loop;
pub mod tree;
pub mod workloads;

use closed_loop::{Machine, MachinePlan};
use workloads::{LOADS, costs};

/// Prints the amplification of each of the [`workloads`], as a Markdown table: bytes compacted for
/// each byte flushed, files that a read may ask, and stored size.
pub fn print_costs(seed: u64) {
    println!("| load | written | asked | size |\n|---|---|---|---|");
    for load in &LOADS {
        let (written, asked, size) = costs(load, seed);
        println!("| {} | {written:.1} | {asked:.1} | {size:.2} |", load.name);
    }
}

/// Plans of simulations for several kinds of machines and trees. Each simulation runs for `seconds`
/// of virtual time.
pub fn plans(seed: u64, seconds: u64) -> Vec<(&'static str, MachinePlan)> {
    let plan = MachinePlan {
        seed,
        seconds,
        ..MachinePlan::default()
    };
    let small = MachinePlan {
        keys: 500_000,
        scale: 5,
        ..plan.clone()
    };
    let large = MachinePlan {
        keys: 40_000_000,
        scale: 400,
        ..plan.clone()
    };
    let skewed = MachinePlan {
        key: closed_loop::skewed,
        ..plan.clone()
    };
    let two = MachinePlan {
        jobs: 2,
        processors: 4.0,
        ..plan.clone()
    };
    vec![
        ("5 million rows, 2 processors", plan),
        ("half a million rows", small),
        ("40 million rows", large),
        ("skewed updates", skewed),
        ("two jobs, 4 processors", two),
    ]
}

/// Prints throughput and space of writers at full speed ([`closed_loop`]), as a Markdown table.
pub fn print_closed(seed: u64, seconds: u64) {
    println!("| writers at full speed | median | slowest | space | allowed | written | deepest |");
    println!("|---|---|---|---|---|---|---|");
    for (name, plan) in plans(seed, seconds) {
        let seen = Machine::new(plan).run();
        println!(
            "| {name} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} | {} |",
            seen.median(),
            seen.slowest(),
            seen.largest(),
            seen.allowed(),
            seen.written,
            seen.deepest,
        );
    }
}

#[cfg(test)]
mod tests;
