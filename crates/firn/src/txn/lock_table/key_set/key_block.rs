//! One block of a key set: a first key, and steps that lead from each key to the next.

use crate::base::varint::{put_bytes, put_u64, take_bytes, take_u64};
use std::cmp::Ordering;

/// A block is full when its steps take this many bytes.
const FULL: usize = 512;

/// A step from a key to one or more following keys.
///
/// Encoding: a varint `n`. If `n` is even, the step is a [`Step::Run`] of `n / 2` keys, and `by`
/// follows as a varint. If `n` is odd, the step is a [`Step::Key`] that shares `n / 2` bytes
/// (rounded down) with the key before; the length of its other bytes (varint) and these bytes
/// follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    /// `count` keys of the same length as the key before. They differ from it only in the last
    /// eight bytes (all bytes, if there are fewer). These are a big-endian number, which grows by
    /// `by` from key to key.
    Run { count: u64, by: u64 },
    /// One key: the first `shared` bytes of the key before, then `rest`.
    Key { shared: usize, rest: &'a [u8] },
}

/// Position of a searched key relative to the keys of a step.
enum StepPosition {
    /// After the step's last key.
    Beyond,
    /// It is the step's n-th key, counted from 1.
    Is(u64),
    /// The searched key lies between the n-th key of the step and the key after that. For n = 0 it
    /// lies between the key before the step and the step's first key.
    After(u64),
}

/// Result of a removal.
pub(super) enum KeyRemoval {
    /// The key is not in the block.
    Absent,
    /// The key was removed, and the first key is the same as before.
    Inner,
    /// The first key was removed. The value is the new first key; `None` if no key is left.
    First(Option<Box<[u8]>>),
}

/// The keys of a block, encoded as steps: a step leads from one key to the next one, or to a *key
/// run*, several keys that grow by the same number `by`. The first key is not encoded here: it is
/// the block's key in the set's map, and the methods take it as the argument `first`.
///
/// A change in the middle encodes the steps around it again and joins adjacent key runs with the
/// same `by`, so that a range filled in any order ends as one key run. Two such key runs may stay
/// side by side where the last steps were changed or removed, since an append joins its key only to
/// a key run whose offset is in `tail`.
pub(super) struct Block {
    steps: Vec<u8>,
    last: Vec<u8>,
    len: u64,
    /// The second last and the last step, if they are runs: offset of the step in `steps`, number
    /// of keys in the run, distance between two of its keys. With this an append need not walk
    /// through the steps. `None` for a step that is no run, or whose offset is not known.
    tail: [Option<(usize, u64, u64)>; 2],
}

/// Offset of the bytes of `key` that a run changes.
fn tail_at(key: &[u8]) -> usize {
    key.len().saturating_sub(8)
}

/// At most eight bytes as a big-endian number.
fn number(tail: &[u8]) -> u64 {
    tail.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// The distance between two keys that could follow each other in a [`Step::Run`]: the difference of
/// the numbers in their last eight bytes. `None` if the keys have different lengths or differ
/// before those bytes.
fn difference(from: &[u8], to: &[u8]) -> Option<u64> {
    let at = tail_at(from);
    let same = from.len() == to.len() && from[..at] == to[..at];
    same.then(|| number(&to[at..]).wrapping_sub(number(&from[at..])))
}

/// The last eight bytes of `key` as a number; `None` if the keys differ in length or in other
/// bytes, so that no [`Step::Run`] can lead from `before` to `key`.
fn target(before: &[u8], key: &[u8]) -> Option<u64> {
    difference(before, key)?;
    Some(number(&key[tail_at(key)..]))
}

/// Adds `by` to the big-endian number in the last eight bytes of `key` (in all bytes, if there are
/// fewer). The sum fits into these bytes, since the result is a key of the set. A negated `by`
/// subtracts, as the sum wraps around.
fn advance(key: &mut [u8], by: u64) {
    let at = tail_at(key);
    let bytes = number(&key[at..]).wrapping_add(by).to_be_bytes();
    let tail = &mut key[at..];
    tail.copy_from_slice(&bytes[8 - tail.len()..]);
}

impl<'a> Step<'a> {
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        if input.is_empty() {
            return None;
        }
        let head = take_u64(input).expect("written here");
        Some(match head & 1 {
            0 => Self::Run {
                count: head >> 1,
                by: take_u64(input).expect("written here"),
            },
            _ => Self::Key {
                shared: (head >> 1) as usize,
                rest: take_bytes(input).expect("written here"),
            },
        })
    }

    fn put(self, out: &mut Vec<u8>) {
        match self {
            Self::Run { count, by } => {
                put_u64(out, count << 1);
                put_u64(out, by);
            }
            Self::Key { shared, rest } => {
                put_u64(out, (shared as u64) << 1 | 1);
                put_bytes(out, rest);
            }
        }
    }

    fn between(from: &[u8], to: &'a [u8]) -> Self {
        match difference(from, to) {
            Some(by) => Self::Run { count: 1, by },
            None => {
                let pairs = from.iter().zip(to);
                let shared = pairs.take_while(|(a, b)| a == b).count();
                Self::Key {
                    shared,
                    rest: &to[shared..],
                }
            }
        }
    }

    fn len(self) -> u64 {
        match self {
            Self::Run { count, .. } => count,
            Self::Key { .. } => 1,
        }
    }

    /// This step encodes one or more keys that follow a known key. Changes `key` from that known
    /// key, which counts as number 0, to the n-th key that the step encodes.
    fn go(self, key: &mut Vec<u8>, n: u64) {
        match self {
            Self::Run { by, .. } => advance(key, by.wrapping_mul(n)),
            Self::Key { shared, rest } if n > 0 => {
                key.truncate(shared);
                key.extend_from_slice(rest);
            }
            Self::Key { .. } => {}
        }
    }

    /// Position of `key` relative to the keys that this step encodes. `before` is the last key
    /// before these, and `key` is greater than it.
    fn place(self, before: &[u8], key: &[u8]) -> StepPosition {
        let (count, by) = match self {
            Self::Run { count, by } => (count, by),
            Self::Key { shared, rest } => {
                let (front, back) = key.split_at(shared.min(key.len()));
                let order = front.cmp(&before[..shared]).then_with(|| back.cmp(rest));
                return match order {
                    Ordering::Less => StepPosition::After(0),
                    Ordering::Equal => StepPosition::Is(1),
                    Ordering::Greater => StepPosition::Beyond,
                };
            }
        };
        let at = tail_at(before);
        let front = &key[..at.min(key.len())];
        match front.cmp(&before[..at]) {
            Ordering::Less => return StepPosition::After(0),
            Ordering::Greater => return StepPosition::Beyond,
            Ordering::Equal => {}
        }
        // `key` starts with the bytes that all keys of the run share. In the keys of the run a
        // number of up to eight bytes follows. Read the same bytes of `key` as a number, with zeros
        // for bytes that it lacks, and compare it with the numbers of the run.
        let width = before.len() - at;
        let mut filled = [0; 8];
        let there = (key.len() - at).min(width);
        filled[..there].copy_from_slice(&key[at..at + there]);
        let from = number(&before[at..]);
        let offset = number(&filled[..width]).wrapping_sub(from);
        let n = match key.len() < before.len() {
            // `key` is shorter than the keys of this key run, and `filled` is its number with zeros
            // appended. If a key of the run has the same number, `key` sorts before it.
            true => offset.saturating_sub(1) / by,
            false => offset / by,
        };
        if n > count || (n == count && (offset > n * by || key.len() > before.len())) {
            StepPosition::Beyond
        } else if key.len() == before.len() && n * by == offset {
            StepPosition::Is(n)
        } else {
            StepPosition::After(n)
        }
    }
}

/// Writes steps, and joins adjacent runs with the same `by`.
struct Writer {
    out: Vec<u8>,
    /// Count and `by` of the last run, which is not written yet.
    run: Option<(u64, u64)>,
}

impl Writer {
    fn new(capacity: usize) -> Self {
        Self {
            out: Vec::with_capacity(capacity),
            run: None,
        }
    }

    fn put(&mut self, step: Step<'_>) {
        match (step, &mut self.run) {
            (Step::Run { count: 0, .. }, _) => {}
            (Step::Run { count, by }, Some((sum, same))) if by == *same => *sum += count,
            (Step::Run { count, by }, _) => {
                self.flush();
                self.run = Some((count, by));
            }
            (Step::Key { .. }, _) => {
                self.flush();
                step.put(&mut self.out);
            }
        }
    }

    fn flush(&mut self) {
        if let Some((count, by)) = self.run.take() {
            Step::Run { count, by }.put(&mut self.out);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }
}

/// The step of a block to which a searched key belongs.
struct StepMatch<'a> {
    /// If the step changes, the bytes of the block must be encoded anew from this offset on. It is
    /// the offset of the step before, because a change may join that step and this one into one
    /// run, or the offset of this step if it is the first.
    from: usize,
    previous: Option<Step<'a>>,
    step: Step<'a>,
    /// Offset of the end of the step.
    end: usize,
    /// The key before the step.
    before: Vec<u8>,
    /// Position of the searched key in the step.
    place: StepPosition,
}

impl Block {
    /// A block of one key.
    pub(super) fn new(key: &[u8]) -> Self {
        Self {
            steps: Vec::new(),
            last: key.to_vec(),
            len: 1,
            tail: [None; 2],
        }
    }

    /// Number of keys, the first one included.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    pub(super) fn has_room(&self) -> bool {
        self.steps.len() < FULL
    }

    /// Gives back unused memory, since nothing more will be appended.
    pub(super) fn close(&mut self) {
        self.steps.shrink_to_fit();
    }

    /// Memory without the first key, in bytes.
    pub(super) fn bytes(&self) -> usize {
        const ALLOCATIONS: usize = 32;
        size_of::<Self>() + self.steps.capacity() + self.last.capacity() + ALLOCATIONS
    }

    pub(super) fn contains(&self, first: &[u8], key: &[u8]) -> bool {
        match key.cmp(&self.last) {
            Ordering::Greater => false,
            Ordering::Equal => true,
            Ordering::Less if key == first => true,
            Ordering::Less => matches!(self.find(first, key).place, StepPosition::Is(_)),
        }
    }

    /// Finds the step that has `key`, or in whose place `key` belongs. `key` must be greater than
    /// the first key and at most the last one.
    fn find<'a>(&'a self, first: &[u8], key: &[u8]) -> StepMatch<'a> {
        let mut input = &self.steps[..];
        let mut before = first.to_vec();
        let (mut from, mut previous, mut at) = (0, None, 0);
        while let Some(mut step) = Step::take(&mut input) {
            let mut end = self.steps.len() - input.len();
            // Skip each [`Step::Run`] that ends before `key` by adding up numbers, without building
            // its keys: a block may have hundreds of such steps one after the other, most of them
            // of one key.
            if let (Step::Run { .. }, Some(target)) = (step, target(&before, key)) {
                let tail = tail_at(&before);
                let from_number = number(&before[tail..]);
                let mut reached = from_number;
                while let Step::Run { count, by } = step
                    && reached + count * by < target
                    && let Some(next) = Step::take(&mut input)
                {
                    reached += count * by;
                    (from, previous, at) = (at, Some(step), end);
                    step = next;
                    end = self.steps.len() - input.len();
                }
                advance(&mut before, reached - from_number);
            }
            let place = step.place(&before, key);
            if !matches!(place, StepPosition::Beyond) {
                return StepMatch {
                    from,
                    previous,
                    step,
                    end,
                    before,
                    place,
                };
            }
            step.go(&mut before, step.len());
            (from, previous, at) = (at, Some(step), end);
        }
        unreachable!("the last key is not below the key looked for")
    }

    /// Adds a key after the last one.
    pub(super) fn append(&mut self, key: &[u8]) {
        let step = Step::between(&self.last, key);
        match (step, self.tail[1]) {
            (Step::Run { by, .. }, Some((at, count, same))) if by == same => {
                self.steps.truncate(at);
                self.put_tail_run(at, count + 1, by);
            }
            (Step::Run { by, .. }, newest) => {
                self.tail[0] = newest;
                self.put_tail_run(self.steps.len(), 1, by);
            }
            (Step::Key { .. }, _) => {
                step.put(&mut self.steps);
                self.tail = [None; 2];
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.len += 1;
    }

    /// Writes a run at `at`, the end of the steps.
    fn put_tail_run(&mut self, at: usize, count: u64, by: u64) {
        Step::Run { count, by }.put(&mut self.steps);
        self.tail[1] = Some((at, count, by));
    }

    /// Adds a key before `first`.
    pub(super) fn prepend(&mut self, key: &[u8], first: &[u8]) {
        let mut input = &self.steps[..];
        let mut writer = Writer::new(32);
        writer.put(Step::between(key, first));
        if let Some(step) = Step::take(&mut input) {
            writer.put(step);
        }
        let end = self.steps.len() - input.len();
        self.replace(0, end, writer);
        self.len += 1;
    }

    /// Adds a key between the first and the last one.
    pub(super) fn insert(&mut self, first: &[u8], key: &[u8]) {
        let found = self.find(first, key);
        let StepPosition::After(n) = found.place else {
            debug_assert!(false, "a key is locked once");
            return;
        };
        let mut writer = Writer::new(64);
        if let Some(previous) = found.previous {
            writer.put(previous);
        }
        let (mut left, mut right) = (found.before.clone(), found.before);
        found.step.go(&mut left, n);
        found.step.go(&mut right, n + 1);
        if let Step::Run { by, .. } = found.step {
            writer.put(Step::Run { count: n, by });
        }
        writer.put(Step::between(&left, key));
        writer.put(Step::between(key, &right));
        if let Step::Run { count, by } = found.step {
            let count = count - n - 1;
            writer.put(Step::Run { count, by });
        }
        let end = self.put_next(found.end, &mut writer);
        let from = found.from;
        self.replace(from, end, writer);
        self.len += 1;
    }

    /// Decodes the step (the encoding of one or more following keys) at offset `at` and adds it to
    /// `writer`. At the end of the block there is none to add. Returns the offset behind the step.
    fn put_next(&self, at: usize, writer: &mut Writer) -> usize {
        let mut input = &self.steps[at..];
        if let Some(step) = Step::take(&mut input) {
            writer.put(step);
        }
        self.steps.len() - input.len()
    }

    /// Replaces the encoded steps between the byte offsets `from` and `to` with those of `by`.
    /// `tail` keeps the offsets of the last two steps: those behind the replaced bytes are moved by
    /// the difference in length, the others are forgotten.
    fn replace(&mut self, from: usize, to: usize, by: Writer) {
        let by = by.finish();
        if to == self.steps.len() {
            self.tail = [None; 2];
        } else {
            let moved = |at: usize| (at >= to).then(|| at - (to - from) + by.len());
            let still = |(at, count, step)| moved(at).map(|at| (at, count, step));
            self.tail = self.tail.map(|known| known.and_then(still));
        }
        self.steps.splice(from..to, by);
    }

    /// Removes `key`.
    pub(super) fn remove(&mut self, first: &[u8], key: &[u8]) -> KeyRemoval {
        if key == first {
            return KeyRemoval::First(self.remove_first(first));
        }
        match key.cmp(&self.last) {
            Ordering::Greater => return KeyRemoval::Absent,
            Ordering::Equal if self.remove_last() => return KeyRemoval::Inner,
            _ => {}
        }
        let found = self.find(first, key);
        let StepPosition::Is(n) = found.place else {
            return KeyRemoval::Absent;
        };
        let mut writer = Writer::new(64);
        if let Some(previous) = found.previous {
            writer.put(previous);
        }
        let mut left = found.before;
        found.step.go(&mut left, n - 1);
        if let Step::Run { by, .. } = found.step {
            writer.put(Step::Run { count: n - 1, by });
        }
        let mut last = None;
        let mut input = match found.step {
            // The next key is in the same run.
            Step::Run { count, by } if n < count => {
                let mut right = key.to_vec();
                advance(&mut right, by);
                writer.put(Step::between(&left, &right));
                let count = count - n - 1;
                writer.put(Step::Run { count, by });
                &self.steps[found.end..]
            }
            _ => {
                let mut input = &self.steps[found.end..];
                match Step::take(&mut input) {
                    Some(next) => {
                        let mut right = key.to_vec();
                        next.go(&mut right, 1);
                        writer.put(Step::between(&left, &right));
                        if let Step::Run { count, by } = next {
                            let count = count - 1;
                            writer.put(Step::Run { count, by });
                        }
                    }
                    // `key` was the last key of the block.
                    None => last = Some(left),
                }
                input
            }
        };
        if let Some(step) = Step::take(&mut input) {
            writer.put(step);
        }
        let (from, end) = (found.from, self.steps.len() - input.len());
        self.replace(from, end, writer);
        if let Some(last) = last {
            self.last = last;
        }
        self.len -= 1;
        KeyRemoval::Inner
    }

    /// Removes the last key of the block without walking through the block. That is possible only
    /// if the key belongs to a key run (several keys at equal distances) whose offset is in `tail`.
    /// Returns whether the key was removed.
    fn remove_last(&mut self) -> bool {
        let Some((at, count, by)) = self.tail[1] else {
            return false;
        };
        self.steps.truncate(at);
        match count {
            1 => self.tail = [None, self.tail[0]],
            _ => self.put_tail_run(at, count - 1, by),
        }
        advance(&mut self.last, by.wrapping_neg());
        self.len -= 1;
        true
    }

    /// Removes the first key. Returns the new first key, if one is left.
    fn remove_first(&mut self, first: &[u8]) -> Option<Box<[u8]>> {
        self.len -= 1;
        let mut input = &self.steps[..];
        let step = Step::take(&mut input)?;
        let mut next = first.to_vec();
        step.go(&mut next, 1);
        let mut writer = Writer::new(16);
        if let Step::Run { count, by } = step {
            let count = count - 1;
            writer.put(Step::Run { count, by });
        }
        let end = self.steps.len() - input.len();
        self.replace(0, end, writer);
        Some(next.into())
    }

    /// Splits the block of keys after about half of its encoded bytes, between two [`Step`]s. Keeps
    /// the first half. Returns the first key and the block of the second half; `None` if the block
    /// has only one step.
    pub(super) fn split(&mut self, first: &[u8]) -> Option<(Box<[u8]>, Self)> {
        let mut input = &self.steps[..];
        let mut key = first.to_vec();
        let mut len = 1;
        while self.steps.len() - input.len() < self.steps.len() / 2 {
            let step = Step::take(&mut input).expect("half is left");
            step.go(&mut key, step.len());
            len += step.len();
        }
        let at = self.steps.len() - input.len();
        if at == 0 || at == self.steps.len() {
            return None;
        }
        let mut second = Self {
            steps: self.steps.split_off(at),
            last: std::mem::replace(&mut self.last, key),
            len: self.len - len,
            tail: [None; 2],
        };
        self.steps.shrink_to_fit();
        self.len = len;
        self.tail = [None; 2];
        // A block stores its first key apart from its steps. The steps of the second block still
        // begin with the one that leads to its first key, from `before`, the last key of the first
        // block. So take `before` for the first key of the second block and remove it: then the
        // next key becomes the first one, and its step is removed.
        let before = self.last.clone();
        second.len += 1;
        let first = second.remove_first(&before).expect("a step is left");
        Some((first, second))
    }

    /// The steps behind the first key, for a walk over all keys.
    pub(super) fn walk(&self) -> BlockWalk<'_> {
        BlockWalk {
            input: &self.steps,
            step: None,
            left: 0,
        }
    }
}

/// A walk over the keys of a block behind the first one.
pub(super) struct BlockWalk<'a> {
    input: &'a [u8],
    step: Option<Step<'a>>,
    /// Keys of `step` that are still to come.
    left: u64,
}

impl BlockWalk<'_> {
    /// Changes `key` from one key of the block to the next. False at the end of the block.
    pub(super) fn advance(&mut self, key: &mut Vec<u8>) -> bool {
        if self.left == 0 {
            self.step = Step::take(&mut self.input);
            self.left = self.step.map_or(0, Step::len);
        }
        let Some(step) = self.step else {
            return false;
        };
        step.go(key, 1);
        self.left -= 1;
        true
    }
}
