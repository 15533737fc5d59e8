//! Locks that a rollback of a statement, or to a savepoint, releases.

use super::lock_table::KeySet;
use super::write_set::Savepoint;

/// Largest number of bytes of keys that a group stores one after the other. If there are more, all
/// of them move to a sorted set.
const SINGLE_BYTES_MAX: usize = 256 << 10;

/// The keys that writes of a transaction have locked and that it had not locked before: keys of
/// inserted rows, and new and old values of unique indexes. In InnoDB these locks are implicit: the
/// fact that a transaction has written a row locks the row. So when a rollback removes the writes,
/// the locks go with them. Locks that reads have taken stay.
///
/// Groups are the units of a rollback: all keys of one group were locked between the same
/// savepoints. The running statement has a group of its own. When it ends, its group joins that of
/// the newest savepoint; without a savepoint only the whole transaction can be rolled back, which
/// releases all locks, so the keys are forgotten. A group keeps up to 256 KiB of keys one after the
/// other; more of them become a [`KeySet`], which takes a few bytes for each key.
#[derive(Default)]
pub(super) struct WriteLocks {
    /// Ascending by `start`, without duplicates.
    groups: Vec<LockGroup>,
    /// The newest savepoint.
    savepoint: Option<Savepoint>,
    /// Buffers of a group that is not in use.
    spare: Option<LockGroup>,
}

/// Keys that were locked by writes after `start`.
#[derive(Default)]
pub(super) struct LockGroup {
    start: Savepoint,
    /// The newest keys, one after the other.
    bytes: Vec<u8>,
    lengths: Vec<u32>,
    /// Older keys.
    many: KeySet,
}

impl LockGroup {
    fn add(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.lengths.push(key.len() as u32);
        if self.bytes.len() > SINGLE_BYTES_MAX {
            self.merge();
        }
    }

    /// Moves all keys to the sorted set.
    fn merge(&mut self) {
        let mut keys = Vec::with_capacity(self.lengths.len());
        for_each_newest_first(&self.bytes, &self.lengths, |key| keys.push(key));
        keys.sort_unstable();
        for key in keys {
            if !self.many.contains(key) {
                self.many.insert(key);
            }
        }
        self.bytes.clear();
        self.lengths.clear();
    }

    /// Adds the keys of a later group.
    fn absorb(&mut self, later: &mut Self) {
        if self.many.len() == 0 {
            std::mem::swap(&mut self.many, &mut later.many);
        }
        later.many.for_each(|key| self.add(key));
        later.many = KeySet::default();
        self.bytes.append(&mut later.bytes);
        self.lengths.append(&mut later.lengths);
        if self.bytes.len() > SINGLE_BYTES_MAX {
            self.merge();
        }
    }

    /// Calls `f` with each key, about the newest first.
    pub(super) fn for_each(&self, mut f: impl FnMut(&[u8])) {
        for_each_newest_first(&self.bytes, &self.lengths, &mut f);
        self.many.for_each(f);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(SINGLE_BYTES_MAX);
        self.lengths.clear();
        self.many = KeySet::default();
    }
}

fn for_each_newest_first<'a>(bytes: &'a [u8], lengths: &[u32], mut f: impl FnMut(&'a [u8])) {
    let mut end = bytes.len();
    for len in lengths.iter().rev() {
        let start = end - *len as usize;
        f(&bytes[start..end]);
        end = start;
    }
}

impl WriteLocks {
    /// Notes keys that writes of the running statement, which began at `statement`, have locked.
    pub(super) fn add<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        statement: Savepoint,
    ) {
        let start = self.savepoint.map_or(statement, |at| at.max(statement));
        for key in keys {
            if self.groups.last().is_none_or(|last| last.start < start) {
                let mut group = self.spare.take().unwrap_or_default();
                group.start = start;
                self.groups.push(group);
            }
            self.groups.last_mut().expect("not empty").add(key);
        }
    }

    /// The running statement has ended, and its changes stay.
    pub(super) fn end_statement(&mut self) {
        let Some(savepoint) = self.savepoint else {
            return self.clear();
        };
        while let [.., before, last] = &mut self.groups[..]
            && before.start >= savepoint
        {
            before.absorb(last);
            self.spare = self.groups.pop();
        }
    }

    /// Notes that a savepoint was set at `mark`.
    pub(super) fn set_savepoint(&mut self, mark: Savepoint) {
        self.savepoint = Some(mark);
    }

    /// Removes and returns the groups of keys that writes after the savepoint `mark` have locked.
    /// These writes were rolled back, so the caller releases the locks.
    pub(super) fn roll_back(&mut self, mark: Savepoint) -> Vec<LockGroup> {
        self.savepoint = self.savepoint.map(|at| at.min(mark));
        let keep = self.groups.partition_point(|group| group.start < mark);
        self.groups.split_off(keep)
    }

    /// Forgets all keys, because the transaction has ended or cannot be rolled back in part.
    pub(super) fn clear(&mut self) {
        self.savepoint = None;
        if let Some(mut group) = self.groups.pop() {
            group.clear();
            self.spare = Some(group);
            self.groups.clear();
        }
    }

    /// Memory, in bytes.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        let groups = self.groups.iter();
        groups
            .map(|group| group.many.bytes() + (group.bytes.len() + 4 * group.lengths.len()) as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests;
