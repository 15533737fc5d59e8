//! Searches cycles in the wait-for graph, with pure functions that take no locks.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::Hash;

/// Searches depth-first for a cycle through `start`. Returns its nodes, `start` first: each node
/// waits for the next one, and the last one waits for `start`. `None` if there is no such cycle.
/// `key` identifies a node. `blockers` returns the nodes that a node waits for; it is called once
/// for each node that the search reaches.
pub(super) fn find_cycle<N: Clone, K: Hash + Eq>(
    start: &N,
    key: impl Fn(&N) -> K,
    mut blockers: impl FnMut(&N) -> Vec<N>,
) -> Option<Vec<N>> {
    let home = key(start);
    let mut visited = HashSet::new();
    let mut path = vec![start.clone()];
    let mut unvisited = vec![blockers(start)];
    while let Some(next) = unvisited.last_mut() {
        let Some(node) = next.pop() else {
            unvisited.pop();
            path.pop();
            continue;
        };
        let name = key(&node);
        if name == home {
            return Some(path);
        }
        if visited.insert(name) {
            unvisited.push(blockers(&node));
            path.push(node);
        }
    }
    None
}

/// Index of the victim in a cycle: the member with the least weight. If several have it, the first
/// one is the victim: index 0 is the requester, and the other members have waited longer.
/// `preferred` compares two members and comes before the weight: `Less` makes the first of them the
/// victim, `Greater` the second.
pub(super) fn victim(weights: &[u64], preferred: impl Fn(usize, usize) -> Ordering) -> usize {
    let better = |victim: usize, next: usize| match preferred(victim, next) {
        Ordering::Less => victim,
        Ordering::Greater => next,
        Ordering::Equal if weights[next] < weights[victim] => next,
        Ordering::Equal => victim,
    };
    (1..weights.len()).fold(0, better)
}

#[cfg(test)]
mod tests;
