//! A persistent list with sums: a copy shares its nodes with the original, and a change copies only
//! the nodes on its path.
//!
//! The list is a B+-tree of at most [`WIDTH`] items or children a node. The parent keeps, for each
//! child, its number of items, its last item and the sum over its items. So a search for an item by
//! its position or by bisection, a sum over a range of items and a change of the list each visit a
//! number of nodes that grows with the logarithm of the length.
//!
//! Sums need not be numbers that can be subtracted: a changed node adds up its items anew. So a sum
//! may also be a minimum; or, for a sequence of starts and ends of ranges, the largest number of
//! ranges that are open at one point.
//!
//! ```text
//! a copy, then one insertion:      root'      root
//!                                 /  |  \    /  |
//!                               leaf leaf' ──── leaf     (leaf' is copied, the others are shared)
//! ```
//!
//! Rejected: a vector of chunks. Each change copies the vector, which has a thousand chunks for
//! three hundred thousand files.

use super::work_count;
use std::ops::{Index, Range};
use std::sync::Arc;

/// Most items of a leaf and most children of an inner node.
const WIDTH: usize = 64;

/// Nodes of a list that is built at once have this many items, so that early insertions find room.
const FILL: usize = 48;

/// An item with a sum.
pub trait Summed: Clone {
    /// The sum over several items. The default is the sum over none.
    type Sum: Clone + Default;

    /// The sum over this item alone.
    fn sum(&self) -> Self::Sum;

    /// Appends `right`, the sum over later items, to `left`.
    fn join(left: &mut Self::Sum, right: &Self::Sum);
}

#[derive(Clone)]
enum Node<T: Summed> {
    Leaf(Vec<T>),
    Inner {
        children: Vec<Child<T>>,
        /// Number of items up to the end of each child.
        ends: Vec<usize>,
    },
}

#[derive(Clone)]
struct Child<T: Summed> {
    node: Arc<Node<T>>,
    len: usize,
    last: T,
    sum: T::Sum,
}

impl<T: Summed> Node<T> {
    fn inner(children: Vec<Child<T>>) -> Self {
        let mut end = 0;
        let ends = children.iter().map(|child| {
            end += child.len;
            end
        });
        let ends = ends.collect();
        Self::Inner { children, ends }
    }

    /// Number of items or children.
    fn width(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Inner { children, .. } => children.len(),
        }
    }
}

impl<T: Summed> Child<T> {
    /// A child with `node`, which has items.
    fn of(node: Arc<Node<T>>) -> Self {
        let mut sum = T::Sum::default();
        let (len, last) = match &*node {
            Node::Leaf(items) => {
                items.iter().for_each(|item| T::join(&mut sum, &item.sum()));
                (items.len(), items[items.len() - 1].clone())
            }
            Node::Inner { children, ends } => {
                children
                    .iter()
                    .for_each(|child| T::join(&mut sum, &child.sum));
                let last = &children[children.len() - 1].last;
                (ends[ends.len() - 1], last.clone())
            }
        };
        Self {
            node,
            len,
            last,
            sum,
        }
    }

    fn new(node: Node<T>) -> Self {
        work_count::node_made();
        Self::of(Arc::new(node))
    }

    /// Changes the node, after making a copy if other lists share it. If the node then has more
    /// than [`WIDTH`] items or children, cuts off the right half and returns it as a child of its
    /// own. At least one item must remain.
    fn change(&mut self, change: impl FnOnce(&mut Node<T>)) -> Option<Self> {
        if Arc::get_mut(&mut self.node).is_none() {
            work_count::node_made();
            self.node = Arc::new((*self.node).clone());
        }
        let node = Arc::get_mut(&mut self.node).expect("not shared");
        change(node);
        let half = node.width() / 2;
        let right = match node {
            node if node.width() <= WIDTH => None,
            Node::Leaf(items) => Some(Node::Leaf(items.split_off(half))),
            Node::Inner { children, ends } => {
                let right = children.split_off(half);
                ends.truncate(half);
                Some(Node::inner(right))
            }
        };
        *self = Self::of(Arc::clone(&self.node));
        right.map(Self::new)
    }

    fn insert(&mut self, at: usize, item: T) -> Option<Self> {
        self.change(|node| match node {
            Node::Leaf(items) => items.insert(at, item),
            Node::Inner { children, ends } => {
                // If the position lies between two children, the item goes to the end of the left
                // child.
                let child = ends.partition_point(|end| *end < at);
                let before = child.checked_sub(1).map_or(0, |left| ends[left]);
                if let Some(right) = children[child].insert(at - before, item) {
                    children.insert(child + 1, right);
                }
                *node = Node::inner(std::mem::take(children));
            }
        })
    }

    /// Removes an item of a list that has others.
    fn remove(&mut self, at: usize) -> Option<Self> {
        self.change(|node| match node {
            Node::Leaf(items) => drop(items.remove(at)),
            Node::Inner { children, ends } => {
                let child = ends.partition_point(|end| *end <= at);
                let before = child.checked_sub(1).map_or(0, |left| ends[left]);
                if children[child].len == 1 {
                    children.remove(child);
                } else {
                    // A node never gets wider by a removal.
                    children[child].remove(at - before);
                    join_narrow(children, child);
                }
                *node = Node::inner(std::mem::take(children));
            }
        })
    }

    fn replace(&mut self, at: usize, item: T) {
        self.change(|node| match node {
            Node::Leaf(items) => items[at] = item,
            Node::Inner { children, ends } => {
                let child = ends.partition_point(|end| *end <= at);
                let before = child.checked_sub(1).map_or(0, |left| ends[left]);
                children[child].replace(at - before, item);
            }
        });
    }

    /// Adds the sum over the items at `range` to `sum`.
    fn add_range(&self, range: Range<usize>, sum: &mut T::Sum) {
        if range.is_empty() {
        } else if range == (0..self.len) {
            T::join(sum, &self.sum);
        } else {
            match &*self.node {
                Node::Leaf(items) => items[range].iter().for_each(|i| T::join(sum, &i.sum())),
                Node::Inner { children, ends } => {
                    let first = ends.partition_point(|end| *end <= range.start);
                    let mut before = first.checked_sub(1).map_or(0, |left| ends[left]);
                    for child in &children[first..] {
                        if before >= range.end {
                            break;
                        }
                        let from = range.start.saturating_sub(before);
                        let to = (range.end - before).min(child.len);
                        child.add_range(from..to, sum);
                        before += child.len;
                    }
                }
            }
        }
    }

    fn position_from(&self, from: usize, wanted: &impl Fn(&T::Sum) -> bool) -> Option<usize> {
        if from >= self.len || !wanted(&self.sum) {
            return None;
        }
        match &*self.node {
            Node::Leaf(items) => {
                let found = items[from..].iter().position(|item| wanted(&item.sum()));
                found.map(|at| from + at)
            }
            Node::Inner { children, ends } => {
                let first = ends.partition_point(|end| *end <= from);
                (first..children.len()).find_map(|child| {
                    let before = child.checked_sub(1).map_or(0, |left| ends[left]);
                    let found = children[child].position_from(from.saturating_sub(before), wanted);
                    found.map(|at| before + at)
                })
            }
        }
    }
}

/// Joins `child`, if it has become small, with a neighbour if the items of both fit into one node.
fn join_narrow<T: Summed>(children: &mut Vec<Child<T>>, child: usize) {
    if children[child].node.width() > WIDTH / 4 || children.len() == 1 {
        return;
    }
    let left = if child + 1 < children.len() {
        child
    } else {
        child - 1
    };
    if children[left].node.width() + children[left + 1].node.width() > WIDTH {
        return;
    }
    let right = children.remove(left + 1);
    children[left].change(|node| match (node, &*right.node) {
        (Node::Leaf(items), Node::Leaf(more)) => items.extend_from_slice(more),
        (node @ Node::Inner { .. }, Node::Inner { children: more, .. }) => {
            let Node::Inner { children, .. } = node else {
                unreachable!("just matched");
            };
            children.extend_from_slice(more);
            *node = Node::inner(std::mem::take(children));
        }
        _ => unreachable!("all leaves have the same depth"),
    });
}

/// A persistent list with sums.
pub struct SummedList<T: Summed> {
    root: Option<Child<T>>,
}

impl<T: Summed> Clone for SummedList<T> {
    fn clone(&self) -> Self {
        Self {
            root: self.root.clone(),
        }
    }
}

impl<T: Summed> Default for SummedList<T> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<T: Summed + std::fmt::Debug> std::fmt::Debug for SummedList<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Summed> FromIterator<T> for SummedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter().peekable();
        let mut row: Vec<Child<T>> = Vec::new();
        while items.peek().is_some() {
            row.push(Child::new(Node::Leaf(items.by_ref().take(FILL).collect())));
        }
        while row.len() > 1 {
            let mut children = row.into_iter().peekable();
            let mut upper = Vec::new();
            while children.peek().is_some() {
                let some = children.by_ref().take(FILL).collect();
                upper.push(Child::new(Node::inner(some)));
            }
            row = upper;
        }
        Self { root: row.pop() }
    }
}

impl<T: Summed> SummedList<T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.len)
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The item at position `at`.
    pub fn get(&self, at: usize) -> Option<&T> {
        let (leaf, before) = self.leaf_of(at)?;
        leaf.get(at - before)
    }

    /// The leaf of position `at`, and the position of its first item.
    fn leaf_of(&self, at: usize) -> Option<(&[T], usize)> {
        let mut node = &*self.root.as_ref().filter(|root| at < root.len)?.node;
        let mut first = 0;
        loop {
            match node {
                Node::Leaf(items) => return Some((items, first)),
                Node::Inner { children, ends } => {
                    let child = ends.partition_point(|end| *end <= at - first);
                    first += child.checked_sub(1).map_or(0, |left| ends[left]);
                    node = &*children[child].node;
                }
            }
        }
    }

    /// The first item.
    pub fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last item.
    pub fn last(&self) -> Option<&T> {
        self.root.as_ref().map(|root| &root.last)
    }

    /// All items.
    pub fn span(&self) -> Span<'_, T> {
        self.range(0..self.len())
    }

    /// The items at `range`, which must lie in the list.
    pub fn range(&self, range: Range<usize>) -> Span<'_, T> {
        debug_assert!(range.start <= range.end && range.end <= self.len());
        Span {
            list: self,
            from: range.start,
            to: range.end,
        }
    }

    /// Iterates over all items.
    pub fn iter(&self) -> SpanIter<'_, T> {
        self.span().iter()
    }

    /// The sum over all items.
    pub fn sum(&self) -> T::Sum {
        let root = self.root.as_ref();
        root.map_or_else(T::Sum::default, |root| root.sum.clone())
    }

    /// The number of items for which `before` is true. It must be true for the first items and
    /// false for all that follow.
    pub fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let Some(root) = &self.root else { return 0 };
        if before(&root.last) {
            return root.len;
        }
        let (mut node, mut first) = (&*root.node, 0);
        loop {
            match node {
                Node::Leaf(items) => return first + items.partition_point(&before),
                Node::Inner { children, ends } => {
                    let child = children.partition_point(|child| before(&child.last));
                    first += child.checked_sub(1).map_or(0, |left| ends[left]);
                    node = &*children[child].node;
                }
            }
        }
    }

    /// The first item for which `before` is false, see [`Self::partition_point`].
    #[inline]
    pub fn first_not(&self, before: impl Fn(&T) -> bool) -> Option<&T> {
        let root = self.root.as_ref()?;
        let mut node = &*root.node;
        loop {
            match node {
                Node::Leaf(items) => return items.get(items.partition_point(&before)),
                Node::Inner { children, .. } => {
                    let child = children.partition_point(|child| before(&child.last));
                    node = &*children.get(child)?.node;
                }
            }
        }
    }

    /// The first position from `from` on for whose item `wanted` returns true. `wanted` is also
    /// called with sums over several items: if it returns false for such a sum, it must return
    /// false for the sum of each of these items.
    pub fn position_from(&self, from: usize, wanted: impl Fn(&T::Sum) -> bool) -> Option<usize> {
        self.root.as_ref()?.position_from(from, &wanted)
    }

    /// The first position for which the total of `count` over all items up to it, itself included,
    /// exceeds `rank`.
    pub fn select(&self, mut rank: u64, count: impl Fn(&T::Sum) -> u64) -> Option<usize> {
        let root = self.root.as_ref().filter(|root| rank < count(&root.sum))?;
        let (mut node, mut first) = (&*root.node, 0);
        loop {
            match node {
                Node::Leaf(items) => {
                    let at = items.iter().position(|item| {
                        let of = count(&item.sum());
                        let found = rank < of;
                        rank = rank.saturating_sub(of);
                        found
                    });
                    return at.map(|at| first + at);
                }
                Node::Inner { children, ends } => {
                    let child = children.iter().position(|child| {
                        let of = count(&child.sum);
                        let found = rank < of;
                        rank -= if found { 0 } else { of };
                        found
                    })?;
                    first += child.checked_sub(1).map_or(0, |left| ends[left]);
                    node = &*children[child].node;
                }
            }
        }
    }

    /// Inserts an item before position `at`.
    pub fn insert(&mut self, at: usize, item: T) {
        debug_assert!(at <= self.len());
        self.root = Some(match self.root.take() {
            None => Child::new(Node::Leaf(vec![item])),
            Some(mut root) => match root.insert(at, item) {
                None => root,
                Some(right) => Child::new(Node::inner(vec![root, right])),
            },
        });
    }

    /// Removes the item at position `at`.
    ///
    /// # Panics
    /// If the list has no such position.
    pub fn remove(&mut self, at: usize) -> T {
        let item = self.get(at).expect("a position of the list").clone();
        self.root = self
            .root
            .take()
            .filter(|root| root.len > 1)
            .map(|mut root| {
                root.remove(at);
                while let Node::Inner { children, .. } = &*root.node
                    && let [only] = &children[..]
                {
                    root = only.clone();
                }
                root
            });
        item
    }

    /// Replaces the item at position `at`, which must exist.
    pub fn replace(&mut self, at: usize, item: T) {
        debug_assert!(at < self.len());
        self.root
            .iter_mut()
            .for_each(|root| root.replace(at, item.clone()));
    }
}

impl<T: Summed> Index<usize> for SummedList<T> {
    type Output = T;
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("a position of the list")
    }
}

impl<'a, T: Summed> IntoIterator for &'a SummedList<T> {
    type Item = &'a T;
    type IntoIter = SpanIter<'a, T>;
    fn into_iter(self) -> SpanIter<'a, T> {
        self.iter()
    }
}

/// Neighbouring items of a list.
pub struct Span<'a, T: Summed> {
    list: &'a SummedList<T>,
    from: usize,
    to: usize,
}

impl<T: Summed> Clone for Span<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Summed> Copy for Span<'_, T> {}

impl<'a, T: Summed> Span<'a, T> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.to - self.from
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// The positions of the items in the list.
    pub fn positions(&self) -> Range<usize> {
        self.from..self.to
    }

    /// The item at position `at` of the span.
    pub fn get(&self, at: usize) -> Option<&'a T> {
        let at = Some(self.from + at).filter(|at| *at < self.to);
        at.and_then(|at| self.list.get(at))
    }

    /// The first item.
    pub fn first(&self) -> Option<&'a T> {
        self.get(0)
    }

    /// The last item.
    pub fn last(&self) -> Option<&'a T> {
        self.len().checked_sub(1).and_then(|last| self.get(last))
    }

    /// The sum over the items.
    pub fn sum(&self) -> T::Sum {
        let mut sum = T::Sum::default();
        if let Some(root) = &self.list.root {
            root.add_range(self.from..self.to, &mut sum);
        }
        sum
    }

    /// As [`SummedList::partition_point`], in the span.
    pub fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let at = self.list.partition_point(before);
        at.clamp(self.from, self.to) - self.from
    }

    /// As [`SummedList::select`], in the span.
    pub fn select(&self, rank: u64, count: impl Fn(&T::Sum) -> u64) -> Option<usize> {
        let before = count(&self.list.range(0..self.from).sum());
        let at = self.list.select(before + rank, count)?;
        (at < self.to).then(|| at - self.from)
    }

    /// The items of the span at `range`.
    pub fn range(&self, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= self.len());
        Self {
            list: self.list,
            from: self.from + range.start,
            to: self.from + range.end,
        }
    }

    /// Iterates over the items.
    pub fn iter(&self) -> SpanIter<'a, T> {
        SpanIter {
            span: *self,
            front: (&[], 0),
            back: (&[], 0),
        }
    }

    /// The items as a vector.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().cloned().collect()
    }
}

impl<'a, T: Summed> IntoIterator for Span<'a, T> {
    type Item = &'a T;
    type IntoIter = SpanIter<'a, T>;
    fn into_iter(self) -> SpanIter<'a, T> {
        self.iter()
    }
}

/// Iterates over the items of a [`Span`].
pub struct SpanIter<'a, T: Summed> {
    span: Span<'a, T>,
    /// The leaf of the next item, and the position of the leaf's first item.
    front: (&'a [T], usize),
    /// The same for the next item from the back.
    back: (&'a [T], usize),
}

impl<'a, T: Summed> SpanIter<'a, T> {
    fn item(list: &'a SummedList<T>, leaf: &mut (&'a [T], usize), at: usize) -> Option<&'a T> {
        if at < leaf.1 || at - leaf.1 >= leaf.0.len() {
            *leaf = list.leaf_of(at)?;
        }
        leaf.0.get(at - leaf.1)
    }
}

impl<T: Summed> Clone for SpanIter<'_, T> {
    fn clone(&self) -> Self {
        Self {
            span: self.span,
            front: self.front,
            back: self.back,
        }
    }
}

impl<'a, T: Summed> Iterator for SpanIter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        if self.span.is_empty() {
            return None;
        }
        let at = self.span.from;
        self.span.from += 1;
        Self::item(self.span.list, &mut self.front, at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.span.len(), Some(self.span.len()))
    }
}

impl<'a, T: Summed> DoubleEndedIterator for SpanIter<'a, T> {
    fn next_back(&mut self) -> Option<&'a T> {
        if self.span.is_empty() {
            return None;
        }
        self.span.to -= 1;
        Self::item(self.span.list, &mut self.back, self.span.to)
    }
}

impl<T: Summed> ExactSizeIterator for SpanIter<'_, T> {}

#[cfg(test)]
mod tests;
