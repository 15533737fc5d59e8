use super::{EdgeKind, Graph};

fn graph(nodes: usize, edges: &[(usize, usize, EdgeKind)]) -> Graph {
    let mut graph = Graph::default();
    for _ in 0..nodes {
        graph.node();
    }
    for &(from, to, kind) in edges {
        graph.edge(from, to, kind, 0);
    }
    graph
}

#[test]
fn components_are_those_of_the_chosen_kinds() {
    use EdgeKind::{Rw, Ww};
    let g = graph(
        6,
        &[
            (0, 1, Ww),
            (1, 2, Ww),
            (2, 0, Ww),
            (2, 3, Ww),
            (3, 4, Ww),
            (4, 3, Rw),
            (4, 5, Ww),
        ],
    );
    let sorted = |kinds: &[EdgeKind]| {
        let mut found = g.components(kinds);
        found.iter_mut().for_each(|nodes| nodes.sort_unstable());
        found.sort();
        found
    };
    assert_eq!(sorted(&[Ww]), [vec![0, 1, 2]]);
    assert_eq!(sorted(&[Ww, Rw]), [vec![0, 1, 2], vec![3, 4]]);
    assert!(sorted(&[Rw]).is_empty());
}

/// `Session` edges cost nothing, so the longer cycle has fewer dependencies.
#[test]
fn the_cycle_with_the_fewest_dependencies_is_told() {
    use EdgeKind::{Session, Ww};
    let g = graph(
        5,
        &[
            (0, 1, Ww),
            (1, 0, Ww),
            (0, 2, Session),
            (2, 3, Session),
            (3, 4, Session),
            (4, 0, Ww),
        ],
    );
    let cycles = g.cycles(&[Session, Ww]);
    assert_eq!(cycles.len(), 1);
    let nodes: Vec<usize> = cycles[0].iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes.len(), 4);
    assert!(nodes.contains(&3));
}

#[test]
fn long_paths_need_no_stack() {
    let n = 300_000;
    let edges: Vec<_> = (0..n).map(|i| (i, (i + 1) % n, EdgeKind::Ww)).collect();
    assert_eq!(graph(n, &edges).components(&[EdgeKind::Ww])[0].len(), n);
}
