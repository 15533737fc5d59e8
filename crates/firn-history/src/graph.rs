//! A directed graph whose edges have kinds, and the search for its cycles.

use std::collections::{HashMap, VecDeque};

/// The reason why one instant is before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EdgeKind {
    /// The first node precedes the second one in the same transaction.
    Session,
    /// The first node's request was answered before the second node's was made.
    Time,
    /// The second node wrote on top of a version that the first one wrote.
    Ww,
    /// The second node read a version that the first one wrote, or missed a row that the first one
    /// had deleted or moved out of the scan.
    Wr,
    /// The first node read a version that the second one overwrote.
    Rw,
    /// The first node read a range without a row that the second one later put into the range.
    RwRange,
    /// The first node locked a range into which the second one later put a row.
    Gap,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) kind: EdgeKind,
    /// Id of the row from which the order of the two nodes follows; 0 for edges of the kinds
    /// `Session` and `Time`, which no row shows.
    pub(crate) row: u64,
}

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) out: Vec<Vec<Edge>>,
}

/// A cycle: each node with the edge that leaves it.
pub(crate) type Cycle = Vec<(usize, Edge)>;

impl Graph {
    pub(crate) fn node(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }

    pub(crate) fn edge(&mut self, from: usize, to: usize, kind: EdgeKind, row: u64) {
        self.out[from].push(Edge { to, kind, row });
    }

    /// Returns one short cycle of each strongly connected component of the graph that has only the
    /// edges of these kinds.
    pub(crate) fn cycles(&self, kinds: &[EdgeKind]) -> Vec<Cycle> {
        let components = self.components(kinds);
        components
            .iter()
            .map(|nodes| self.shortest(nodes, kinds))
            .collect()
    }

    /// Returns the strongly connected components with more than one node of the graph that has only
    /// the edges of these kinds (Tarjan's algorithm, without recursion).
    pub(crate) fn components(&self, kinds: &[EdgeKind]) -> Vec<Vec<usize>> {
        const NEW: usize = usize::MAX;
        let n = self.out.len();
        let (mut order, mut low) = (vec![NEW; n], vec![0; n]);
        let (mut stack, mut on_stack) = (Vec::new(), vec![false; n]);
        let (mut next, mut found) = (0, Vec::new());
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in 0..n {
            if order[root] != NEW {
                continue;
            }
            path.push((root, 0));
            while let Some(&mut (node, ref mut at)) = path.last_mut() {
                if *at == 0 {
                    order[node] = next;
                    low[node] = next;
                    next += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                let edges = &self.out[node];
                let descend = loop {
                    let Some(edge) = edges.get(*at) else {
                        break None;
                    };
                    *at += 1;
                    if !kinds.contains(&edge.kind) {
                        continue;
                    }
                    if order[edge.to] == NEW {
                        break Some(edge.to);
                    }
                    if on_stack[edge.to] {
                        low[node] = low[node].min(order[edge.to]);
                    }
                };
                if let Some(to) = descend {
                    path.push((to, 0));
                    continue;
                }
                path.pop();
                if let Some(&(parent, _)) = path.last() {
                    low[parent] = low[parent].min(low[node]);
                }
                if low[node] == order[node] {
                    let from = stack
                        .iter()
                        .rposition(|&on| on == node)
                        .expect("it is on it");
                    let component = stack.split_off(from);
                    component.iter().for_each(|&on| on_stack[on] = false);
                    if component.len() > 1 {
                        found.push(component);
                    }
                }
            }
        }
        found
    }

    /// The cycle with the fewest observations, among the cycles through the first 64 nodes of the
    /// component: `Session` and `Time` edges cost nothing, the others 1 (breadth-first search with
    /// costs 0 and 1).
    fn shortest(&self, nodes: &[usize], kinds: &[EdgeKind]) -> Cycle {
        const STARTS: usize = 64;
        let inside: HashMap<usize, ()> = nodes.iter().map(|&node| (node, ())).collect();
        let mut best: Option<(usize, Cycle)> = None;
        for &start in nodes.iter().take(STARTS) {
            let mut before: HashMap<usize, (usize, usize, Edge)> = HashMap::new();
            let mut queue = VecDeque::from([(start, 0)]);
            while let Some((node, cost)) = queue.pop_front() {
                if before.get(&node).is_some_and(|&(known, ..)| known < cost) {
                    continue;
                }
                if node == start && cost > 0 {
                    break;
                }
                for &edge in &self.out[node] {
                    if !kinds.contains(&edge.kind) || !inside.contains_key(&edge.to) {
                        continue;
                    }
                    let says =
                        usize::from(!matches!(edge.kind, EdgeKind::Session | EdgeKind::Time));
                    let cost = cost + says;
                    if before.get(&edge.to).is_none_or(|&(known, ..)| cost < known) {
                        before.insert(edge.to, (cost, node, edge));
                        match says {
                            0 => queue.push_front((edge.to, cost)),
                            _ => queue.push_back((edge.to, cost)),
                        }
                    }
                }
            }
            let Some(&(cost, mut node, mut edge)) = before.get(&start) else {
                continue;
            };
            if best.as_ref().is_some_and(|(known, _)| *known <= cost) {
                continue;
            }
            let mut cycle = vec![(node, edge)];
            while node != start {
                (_, node, edge) = before[&node];
                cycle.push((node, edge));
            }
            cycle.reverse();
            best = Some((cost, cycle));
        }
        best.expect("a component has a cycle through each of its nodes")
            .1
    }
}

#[cfg(test)]
mod tests;
