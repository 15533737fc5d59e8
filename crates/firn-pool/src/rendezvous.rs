//! Rendezvous hashing: each name has an order of the nodes, and lives on the first.
//!
//! When a node comes or goes, only names that it is first for move: 1/n of them. Servers whose
//! lists differ for a while agree about all other names.

use crate::name::Name;

/// The part of a node that places names.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seat {
    /// Hash of the address, so that the order of the list does not matter.
    pub seed: u64,
    /// Share of the names, relative to the other nodes.
    pub weight: u32,
}

/// The indexes of the first and the second node of a name. None without nodes; the second is none
/// with one node.
pub fn first_two(seats: impl Iterator<Item = Seat>, name: &Name) -> Option<(usize, Option<usize>)> {
    let mut first: Option<(f64, usize)> = None;
    let mut second: Option<(f64, usize)> = None;
    for (index, seat) in seats.enumerate() {
        let score = score(seat, name);
        if first.is_none_or(|(best, _)| score > best) {
            second = first;
            first = Some((score, index));
        } else if second.is_none_or(|(best, _)| score > best) {
            second = Some((score, index));
        }
    }
    first.map(|(_, index)| (index, second.map(|(_, index)| index)))
}

/// −w / ln u has its maximum at a node with probability w / Σw, if u is uniform in (0, 1).
fn score(seat: Seat, name: &Name) -> f64 {
    let uniform = ((name.hash_for(seat.seed) >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -f64::from(seat.weight) / uniform.ln()
}

#[cfg(test)]
mod tests;
