//! The ranges of keys of one index that owners have locked, as an interval tree.

use super::lock_owner::LockOwner;
use std::cmp::Ordering;
use std::sync::Arc;

/// The number of a node; [`NONE`] for no node.
type NodeId = u32;

const NONE: NodeId = NodeId::MAX;

/// So many nodes that are not in use are kept for later ranges.
const UNUSED_MAX: usize = 1024;

/// Ranges of keys, `lower ≤ key < upper`, each with its owner. Ranges of different owners may
/// overlap; those of one owner must not.
///
/// A treap in the order of lower bounds, and of owners where these are equal. Each node knows the
/// range of its subtree that ends last, so a search for the ranges with a key visits only subtrees
/// that may have one. All operations take a time in proportion to the logarithm of the number of
/// ranges, and the search to the number of ranges found, too.
///
/// Rejected: pieces that do not overlap, each with a list of owners. Several transactions that scan
/// the same rows then divide each other's ranges at every row, and each row costs each of them
/// several searches among all these pieces.
pub(super) struct GapRanges {
    nodes: Vec<RangeNode>,
    /// Nodes that are not in use.
    free: Vec<NodeId>,
    root: NodeId,
    /// The number from which the next priority is made.
    seed: u32,
}

/// The order of owners: by their ids, and by their addresses in memory, which make sure that two
/// owners are never taken for one.
type OwnerOrder = (u64, usize);

fn owner_order(owner: &Arc<LockOwner>) -> OwnerOrder {
    (owner.id(), Arc::as_ptr(owner).addr())
}

struct RangeNode {
    lower: Box<[u8]>,
    upper: Vec<u8>,
    /// `None` while the node is not in use.
    owner: Option<Arc<LockOwner>>,
    left: NodeId,
    right: NodeId,
    /// The node of this subtree whose range ends last.
    last: NodeId,
    /// No node has a higher priority than its parent.
    priority: u32,
}

impl RangeNode {
    /// The order of this node relative to the range of `owner` from `lower` on.
    fn order(&self, lower: &[u8], owner: OwnerOrder) -> Ordering {
        let order = self.lower[..].cmp(lower);
        order.then_with(|| self.owner.as_ref().map(owner_order).cmp(&Some(owner)))
    }
}

impl Default for GapRanges {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
            seed: 1,
        }
    }
}

impl GapRanges {
    pub(super) fn is_empty(&self) -> bool {
        self.root == NONE
    }

    /// Adds a range of `owner`, which must have no range from `lower` on.
    pub(super) fn insert(&mut self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) {
        // Xorshift: any sequence without a pattern in the order of insertion keeps the tree flat.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        let node = RangeNode {
            lower: lower.into(),
            upper: upper.to_vec(),
            owner: Some(Arc::clone(owner)),
            left: NONE,
            right: NONE,
            last: NONE,
            priority: self.seed,
        };
        let new = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as NodeId
            }
        };
        self.update_last(new);
        self.root = self.insert_below(self.root, new);
    }

    /// Removes the range of `owner` from `lower` on, which must exist.
    pub(super) fn remove(&mut self, owner: &Arc<LockOwner>, lower: &[u8]) {
        let unused = self.free.len();
        self.root = self.remove_below(self.root, lower, owner_order(owner));
        debug_assert!(self.free.len() > unused, "no such range");
        // Give memory back, because a transaction may have locked millions of ranges.
        if self.free.len() > UNUSED_MAX && self.free.len() > self.nodes.len() / 4 * 3 {
            self.compact();
        }
    }

    /// Leaves out the nodes that are not in use.
    fn compact(&mut self) {
        let in_use = self.nodes.iter().filter(|node| node.owner.is_some());
        let mut nodes = Vec::with_capacity(in_use.count());
        let mut moved = vec![NONE; self.nodes.len()];
        for (old, node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            if node.owner.is_some() {
                moved[old] = nodes.len() as NodeId;
                nodes.push(node);
            }
        }
        let moved = |id: NodeId| match id {
            NONE => NONE,
            id => moved[id as usize],
        };
        for node in &mut nodes {
            node.left = moved(node.left);
            node.right = moved(node.right);
            node.last = moved(node.last);
        }
        self.root = moved(self.root);
        self.nodes = nodes;
        self.free = Vec::new();
    }

    /// Changes the upper bound of the range of `owner` from `lower` on, which must exist.
    pub(super) fn set_upper(&mut self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) {
        self.set_upper_below(self.root, (lower, owner_order(owner)), upper);
    }

    /// Calls `f` with the owner of each range with `key`, until `f` returns true. Returns whether
    /// it did.
    pub(super) fn any_with<'a>(
        &'a self,
        key: &[u8],
        mut f: impl FnMut(&'a Arc<LockOwner>) -> bool,
    ) -> bool {
        self.any_below(self.root, key, &mut f)
    }

    /// Calls `f` with the lower bound, the upper bound and the owner of each range, in the order of
    /// lower bounds.
    pub(super) fn for_each(&self, mut f: impl FnMut(&[u8], &[u8], &Arc<LockOwner>)) {
        let mut above = Vec::new();
        let mut next = self.root;
        loop {
            while next != NONE {
                above.push(next);
                next = self.node(next).left;
            }
            let Some(id) = above.pop() else {
                return;
            };
            let node = self.node(id);
            if let Some(owner) = &node.owner {
                f(&node.lower, &node.upper, owner);
            }
            next = node.right;
        }
    }

    fn node(&self, id: NodeId) -> &RangeNode {
        &self.nodes[id as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut RangeNode {
        &mut self.nodes[id as usize]
    }

    /// Finds the range of the subtree of `id` that ends last anew. Must be called after a change of
    /// the node's range or of one of its children.
    fn update_last(&mut self, id: NodeId) {
        let node = self.node(id);
        let mut last = id;
        for child in [node.left, node.right] {
            if child != NONE {
                let ends_last = self.node(child).last;
                if self.node(ends_last).upper > self.node(last).upper {
                    last = ends_last;
                }
            }
        }
        self.node_mut(id).last = last;
    }

    /// Inserts the node `new` into the subtree of `at`. Returns the root of the subtree.
    fn insert_below(&mut self, at: NodeId, new: NodeId) -> NodeId {
        if at == NONE {
            return new;
        }
        if self.node(new).priority > self.node(at).priority {
            let (left, right) = self.split(at, new);
            let node = self.node_mut(new);
            (node.left, node.right) = (left, right);
            self.update_last(new);
            return new;
        }
        if self.is_before(at, new) {
            let child = self.insert_below(self.node(at).right, new);
            self.node_mut(at).right = child;
        } else {
            let child = self.insert_below(self.node(at).left, new);
            self.node_mut(at).left = child;
        }
        self.update_last(at);
        at
    }

    fn is_before(&self, one: NodeId, other: NodeId) -> bool {
        let (one, other) = (self.node(one), self.node(other));
        let owner = |node: &RangeNode| node.owner.as_ref().map(owner_order);
        let order = one.lower.cmp(&other.lower);
        let order = order.then_with(|| owner(one).cmp(&owner(other)));
        debug_assert!(
            order != Ordering::Equal,
            "two ranges of one owner from one key on"
        );
        order == Ordering::Less
    }

    /// Divides the subtree of `at` into the nodes before the node `by` and those behind it.
    fn split(&mut self, at: NodeId, by: NodeId) -> (NodeId, NodeId) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.is_before(at, by) {
            let (left, right) = self.split(self.node(at).right, by);
            self.node_mut(at).right = left;
            self.update_last(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.node(at).left, by);
            self.node_mut(at).left = right;
            self.update_last(at);
            (left, at)
        }
    }

    /// Joins two subtrees, the first of which lies before the second. Returns the root.
    fn join(&mut self, left: NodeId, right: NodeId) -> NodeId {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if self.node(left).priority > self.node(right).priority {
            let child = self.join(self.node(left).right, right);
            self.node_mut(left).right = child;
            self.update_last(left);
            left
        } else {
            let child = self.join(left, self.node(right).left);
            self.node_mut(right).left = child;
            self.update_last(right);
            right
        }
    }

    fn remove_below(&mut self, at: NodeId, lower: &[u8], owner: OwnerOrder) -> NodeId {
        if at == NONE {
            return NONE;
        }
        let node = self.node(at);
        let (left, right) = (node.left, node.right);
        match node.order(lower, owner) {
            Ordering::Equal => {
                let node = self.node_mut(at);
                node.owner = None;
                (node.lower, node.upper) = (Box::default(), Vec::new());
                self.free.push(at);
                return self.join(left, right);
            }
            Ordering::Less => self.node_mut(at).right = self.remove_below(right, lower, owner),
            Ordering::Greater => self.node_mut(at).left = self.remove_below(left, lower, owner),
        }
        self.update_last(at);
        at
    }

    /// Changes an upper bound in the subtree of `at`. Returns the changed node, if the range has
    /// become longer.
    fn set_upper_below(
        &mut self,
        at: NodeId,
        range: (&[u8], OwnerOrder),
        upper: &[u8],
    ) -> Option<NodeId> {
        if at == NONE {
            debug_assert!(false, "no such range");
            return None;
        }
        let node = self.node_mut(at);
        let (left, right) = (node.left, node.right);
        let longer = match node.order(range.0, range.1) {
            Ordering::Equal => {
                let longer = node.upper[..] < *upper;
                node.upper.clear();
                node.upper.extend_from_slice(upper);
                longer.then_some(at)
            }
            Ordering::Less => self.set_upper_below(right, range, upper),
            Ordering::Greater => self.set_upper_below(left, range, upper),
        };
        // A scan makes its range longer at each row, so this must take few comparisons.
        match longer {
            None => self.update_last(at),
            Some(changed) => {
                let last = self.node(at).last;
                if last != changed && self.node(last).upper[..] < *upper {
                    self.node_mut(at).last = changed;
                }
            }
        }
        longer
    }

    fn any_below<'a>(
        &'a self,
        at: NodeId,
        key: &[u8],
        f: &mut impl FnMut(&'a Arc<LockOwner>) -> bool,
    ) -> bool {
        if at == NONE {
            return false;
        }
        let node = self.node(at);
        if self.node(node.last).upper[..] <= *key {
            return false;
        }
        if self.any_below(node.left, key, f) {
            return true;
        }
        if node.lower[..] > *key {
            return false;
        }
        let found = node.upper[..] > *key && node.owner.as_ref().is_some_and(&mut *f);
        found || self.any_below(node.right, key, f)
    }
}

#[cfg(test)]
mod tests;
