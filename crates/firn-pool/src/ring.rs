//! The nodes of the current list, and where names live among them.

use crate::name::Name;
use crate::node::{Log, Node};
use crate::node_list::NodeSpec;
use crate::rendezvous::{Seat, first_two};
use std::sync::Arc;

/// The nodes.
#[derive(Default)]
pub(crate) struct Ring {
    seats: Vec<Seat>,
    nodes: Vec<Arc<Node>>,
}

impl Ring {
    /// The ring for a list. Nodes that the old ring has keep their connections and figures.
    pub(crate) fn new(specs: Vec<NodeSpec>, old: &Ring, log: &Log) -> Self {
        let seats = specs.iter().map(|spec| Seat {
            seed: spec.address.seed(),
            weight: spec.weight,
        });
        let seats = seats.collect();
        let nodes = specs.into_iter().map(|spec| {
            let kept = old
                .nodes
                .iter()
                .find(|node| node.spec.address == spec.address)
                .cloned();
            kept.unwrap_or_else(|| Arc::new(Node::new(spec, log.clone())))
        });
        Self {
            seats,
            nodes: nodes.collect(),
        }
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// The nodes with their current weights.
    pub(crate) fn weighted(&self) -> impl Iterator<Item = (u32, &Arc<Node>)> {
        self.seats.iter().map(|seat| seat.weight).zip(&self.nodes)
    }

    /// Indexes of the first and second node of a name.
    pub(crate) fn place(&self, name: &Name) -> Option<(usize, Option<usize>)> {
        first_two(self.seats.iter().copied(), name)
    }
}
