//! One block of a key set: a first key, and how each following key comes from the one before.

use crate::base::varint::{put_bytes, put_u64, take_bytes, take_u64};
use std::cmp::Ordering;

/// Bytes of steps at which a block is full.
const FULL: usize = 512;

/// How following keys come from the key before.
///
/// Bytes: a number; if even, half of it is the count of a run, and the step follows; if odd, half
/// of it is how many bytes are shared with the key before, and length and bytes of the rest follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    /// `count` keys, each `by` more than the one before: of the same length, with all but the last
    /// eight bytes the same, which are a big-endian number.
    Run { count: u64, by: u64 },
    /// One key: this many bytes of the one before, then these.
    Key { shared: usize, rest: &'a [u8] },
}

/// Where a key lies with respect to a step.
enum StepPosition {
    /// After the step's last key.
    Beyond,
    /// It is the step's n-th key, from 1.
    Is(u64),
    /// Right behind the step's n-th key; 0 is the key before the step.
    After(u64),
}

/// Result of a removal.
pub(super) enum KeyRemoval {
    /// The key is not in the block.
    Absent,
    /// The first key is the same as before.
    Inner,
    /// It was the first key; this is the first one now, or none is left.
    First(Option<Box<[u8]>>),
}

/// Keys after a first one, which the owner of the block keeps.
///
/// Invariant: neighbouring runs with the same step are one run, wherever they meet: a range filled
/// in any order ends as one run. Only after removals at the end may two of them lie side by side.
pub(super) struct Block {
    steps: Vec<u8>,
    last: Vec<u8>,
    len: u64,
    /// The last steps that are runs, newest last, as far as they are known: where, count, step.
    tail: [Option<(usize, u64, u64)>; 2],
}

fn tail_at(key: &[u8]) -> usize {
    key.len().saturating_sub(8)
}

/// The last eight bytes, or fewer, as a number.
fn number(tail: &[u8]) -> u64 {
    tail.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// How much more `to` is than `from`, if a run can lead there.
fn difference(from: &[u8], to: &[u8]) -> Option<u64> {
    let at = tail_at(from);
    let same = from.len() == to.len() && from[..at] == to[..at];
    same.then(|| number(&to[at..]).wrapping_sub(number(&from[at..])))
}

/// The number that a run from `before` would have to reach to get to `key`; `None` if no run leads
/// there.
fn target(before: &[u8], key: &[u8]) -> Option<u64> {
    difference(before, key)?;
    Some(number(&key[tail_at(key)..]))
}

/// Moves `key` on by `by`. The sum fits: it is a key of the set.
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

    /// Moves `key` from the key before the step to its n-th key; `n` may be 0.
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

    /// Where `key` lies; it is greater than `before`, the key before the step.
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
        // Equal, so at least as long as the front; cut or filled up with zeros to the run's length.
        let width = before.len() - at;
        let mut filled = [0; 8];
        let there = (key.len() - at).min(width);
        filled[..there].copy_from_slice(&key[at..at + there]);
        let from = number(&before[at..]);
        let offset = number(&filled[..width]).wrapping_sub(from);
        let n = match key.len() < before.len() {
            // The keys of the run below it are below the number, not equal to it.
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

/// Writes steps and joins runs.
struct Writer {
    out: Vec<u8>,
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

/// A step found in a block.
struct StepMatch<'a> {
    /// Where the step before it begins, or itself if it is the first.
    from: usize,
    previous: Option<Step<'a>>,
    step: Step<'a>,
    end: usize,
    /// The key before the step.
    before: Vec<u8>,
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

    /// Nothing more will be appended.
    pub(super) fn close(&mut self) {
        self.steps.shrink_to_fit();
    }

    /// Memory without the first key, bytes.
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

    /// The step that `key`, between the first and the last one, belongs to.
    fn find<'a>(&'a self, first: &[u8], key: &[u8]) -> StepMatch<'a> {
        let mut input = &self.steps[..];
        let mut before = first.to_vec();
        let (mut from, mut previous, mut at) = (0, None, 0);
        while let Some(mut step) = Step::take(&mut input) {
            let mut end = self.steps.len() - input.len();
            // Runs, most of all of one key, follow each other by the hundred.
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

    /// Writes the last step, a run that begins at the end of the steps.
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

    /// Adds the step that begins at `at`, if any, to `writer`. Returns where it ends.
    fn put_next(&self, at: usize, writer: &mut Writer) -> usize {
        let mut input = &self.steps[at..];
        if let Some(step) = Step::take(&mut input) {
            writer.put(step);
        }
        self.steps.len() - input.len()
    }

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

    /// Takes `key` out.
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
                    // It was the last key of all.
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

    /// Removes the last key if it ends a run that is known. Returns whether.
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

    /// Removes the first key. Returns the one after it.
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

    /// Cuts the block in the middle of its steps: first key and block of the second half; nothing
    /// if there is but one step.
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
        // Its first key is a key of its own, so one step less leads on.
        let before = self.last.clone();
        second.len += 1;
        let first = second.remove_first(&before).expect("a step is left");
        Some((first, second))
    }

    #[cfg(test)]
    pub(super) fn keys(&self, first: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = vec![first.to_vec()];
        let mut input = &self.steps[..];
        while let Some(step) = Step::take(&mut input) {
            for _ in 0..step.len() {
                let mut key = keys[keys.len() - 1].clone();
                step.go(&mut key, 1);
                keys.push(key);
            }
        }
        assert_eq!(keys.len() as u64, self.len);
        assert_eq!(keys[keys.len() - 1], self.last);
        keys
    }
}
