use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn cycle(edges: &[(u32, u32)], start: u32) -> Option<Vec<u32>> {
    find_cycle(
        &start,
        |&node| node,
        |&node| {
            let out = edges.iter().filter(|edge| edge.0 == node);
            out.map(|edge| edge.1).collect()
        },
    )
}

#[test]
fn finds_only_cycles_through_the_start() {
    assert_eq!(cycle(&[(1, 2), (2, 3)], 1), None);
    assert_eq!(cycle(&[(1, 2), (2, 1)], 1), Some(vec![1, 2]));
    assert_eq!(cycle(&[(1, 2), (2, 3), (3, 2)], 1), None);
    assert_eq!(
        cycle(&[(1, 2), (1, 3), (3, 4), (4, 1)], 1),
        Some(vec![1, 3, 4])
    );
}

#[test]
fn agrees_with_reachability_on_random_graphs() {
    for seed in 0..500u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let nodes = rng.random_range(2..9);
        let edges: Vec<(u32, u32)> = (0..rng.random_range(0..16))
            .map(|_| (rng.random_range(0..nodes), rng.random_range(0..nodes)))
            .filter(|(from, to)| from != to)
            .collect();
        let mut reached = vec![0u32];
        let mut at = 0;
        while at < reached.len() {
            let from = reached[at];
            for edge in edges.iter().filter(|edge| edge.0 == from) {
                if !reached[1..].contains(&edge.1) {
                    reached.push(edge.1);
                }
            }
            at += 1;
        }
        let found = cycle(&edges, 0);
        assert_eq!(found.is_some(), reached[1..].contains(&0), "seed {seed}");
        if let Some(found) = found {
            for (i, &from) in found.iter().enumerate() {
                let to = found[(i + 1) % found.len()];
                assert!(edges.contains(&(from, to)), "seed {seed}");
            }
        }
    }
}

#[test]
fn the_lightest_goes_and_the_requester_on_a_tie() {
    let any = |_, _| Ordering::Equal;
    assert_eq!(victim(&[5, 3, 4], any), 1);
    assert_eq!(victim(&[3, 3, 4], any), 0);
    assert_eq!(victim(&[4, 3, 3], any), 1);
}

/// Among members that commit in a prescribed order, the one that commits last is the victim,
/// whatever the weights are.
#[test]
fn a_preferred_victim_goes_before_a_lighter_one() {
    let order = [Some(3), None, Some(1), Some(2)];
    let last = |one: usize, other: usize| match (order[one], order[other]) {
        (Some(one), Some(other)) => i32::cmp(&other, &one),
        _ => Ordering::Equal,
    };
    assert_eq!(victim(&[9, 9, 1, 2], last), 0);
    assert_eq!(victim(&[1, 9, 9, 9], last), 0);
    // Between a member in the order and one outside it, the weight decides.
    assert_eq!(victim(&[9, 1, 9, 9], last), 1);
}
