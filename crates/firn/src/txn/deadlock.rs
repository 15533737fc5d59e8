//! Cycles in the wait-for graph: pure functions, without locks of their own.

use std::collections::HashSet;
use std::hash::Hash;

/// The nodes of a cycle through `start`, from `start` on, each waiting for the next and the last
/// for `start`; `None` if there is none. `blockers` gives whom a node waits for, and is asked once
/// per node reached.
pub(super) fn find_cycle<N: Clone, K: Hash + Eq>(
    start: &N,
    key: impl Fn(&N) -> K,
    mut blockers: impl FnMut(&N) -> Vec<N>,
) -> Option<Vec<N>> {
    let home = key(start);
    let mut visited = HashSet::new();
    let mut path = vec![start.clone()];
    let mut ahead = vec![blockers(start)];
    while let Some(next) = ahead.last_mut() {
        let Some(node) = next.pop() else {
            ahead.pop();
            path.pop();
            continue;
        };
        let name = key(&node);
        if name == home {
            return Some(path);
        }
        if visited.insert(name) {
            ahead.push(blockers(&node));
            path.push(node);
        }
    }
    None
}

/// Which of a cycle has to go, by index: the one with the least weight. The first, who asked, on a
/// tie: the others have waited longer.
pub(super) fn victim(weights: &[u64]) -> usize {
    let least = weights.iter().min().expect("a cycle has members");
    weights.iter().position(|w| w == least).expect("the least")
}

#[cfg(test)]
mod tests;
