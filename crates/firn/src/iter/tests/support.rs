//! Sorted sources over vectors.

use crate::base::key::compare;
use crate::base::{Error, InternalIterator, InternalKey, Kind, Result, Seqno, Value};
use rand::Rng;
use rand::rngs::StdRng;
use std::cell::Cell;
use std::rc::Rc;

/// User key, seqno, kind, value.
pub type Entry = (Vec<u8>, Seqno, Kind, Vec<u8>);

pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
}

pub fn entry(key: &str, seqno: Seqno, value: &str) -> Entry {
    (key.into(), seqno, Kind::Put, value.into())
}

pub fn delete(key: &str, seqno: Seqno) -> Entry {
    (key.into(), seqno, Kind::Delete, Vec::new())
}

/// A random key from a small space, so that keys repeat.
pub fn random_key(rng: &mut StdRng, space: u32) -> Vec<u8> {
    format!("k{:03}", rng.random_range(0..space)).into_bytes()
}

/// An iterator over a sorted vector. If `fail_in` is set, the move after that many moves fails.
pub struct VecIter {
    entries: Vec<Entry>,
    at: Option<usize>,
    /// The last move was to the next entry without its key, after which nobody may ask for the key.
    key_is_stale: bool,
    fail_in: Rc<Cell<Option<u32>>>,
}

impl VecIter {
    pub fn new(mut entries: Vec<Entry>) -> Self {
        sort(&mut entries);
        Self {
            entries,
            at: None,
            key_is_stale: false,
            fail_in: Rc::default(),
        }
    }

    pub fn failing(entries: Vec<Entry>, fail_in: &Rc<Cell<Option<u32>>>) -> Self {
        Self {
            fail_in: Rc::clone(fail_in),
            ..Self::new(entries)
        }
    }

    fn place(&mut self, at: Option<usize>) -> Result<bool> {
        self.at = None;
        if let Some(left) = self.fail_in.get() {
            if left == 0 {
                self.fail_in.set(None);
                return Err(Error::corruption("f", 1, "injected"));
            }
            self.fail_in.set(Some(left - 1));
        }
        self.key_is_stale = false;
        self.at = at.filter(|&at| at < self.entries.len());
        Ok(self.at.is_some())
    }
}

impl InternalIterator for VecIter {
    fn seek_to_first(&mut self) -> Result<bool> {
        self.place(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<bool> {
        self.place(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, user_key: &[u8], seqno: Seqno) -> Result<bool> {
        let at = self
            .entries
            .partition_point(|e| compare(&e.0, e.1, user_key, seqno).is_lt());
        self.place(Some(at))
    }
    fn seek_before(&mut self, user_key: &[u8]) -> Result<bool> {
        let at = self.entries.partition_point(|e| e.0.as_slice() < user_key);
        self.place(at.checked_sub(1))
    }
    fn next(&mut self) -> Result<bool> {
        self.place(Some(self.at.unwrap() + 1))
    }
    fn next_past_versions(&mut self) -> Result<bool> {
        let at = self.at.unwrap();
        let key = &self.entries[at].0;
        let versions = self.entries[at..].iter().take_while(|e| e.0 == *key);
        // A source may pass fewer versions than there are.
        let passed = versions.count().min(1 + at % 4);
        self.place(Some(at + passed))
    }
    fn prev(&mut self) -> Result<bool> {
        self.place(self.at.unwrap().checked_sub(1))
    }
    fn rows_ahead(&mut self, limit: Option<&[u8]>, snapshot: Seqno) -> u32 {
        let at = self.at.unwrap();
        let pairs = self.entries[at..].windows(2);
        let rows = pairs.take_while(|pair| {
            let (key, seqno, kind, _) = &pair[1];
            let below = limit.is_none_or(|limit| key.as_slice() < limit);
            below && *key != pair[0].0 && *seqno <= snapshot && kind.is_put()
        });
        // A source may report fewer rows than it has.
        rows.count() as u32 / (1 + at as u32 % 3)
    }
    fn next_without_key(&mut self) -> (Kind, Value<'_>) {
        self.next_unchecked();
        self.key_is_stale = true;
        (self.entries[self.at.unwrap()].2, self.value())
    }
    fn restore_key(&mut self) {
        self.key_is_stale = false;
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> InternalKey<'_> {
        assert!(!self.key_is_stale, "a stale key");
        let (key, seqno, kind, _) = &self.entries[self.at.unwrap()];
        InternalKey::new(key, *seqno, *kind)
    }
    fn value(&self) -> Value<'_> {
        let value = &self.entries[self.at.unwrap()].3;
        let (head, tail) = value.split_at(value.len() / 2);
        Value::split(head, tail)
    }
}

/// Moves `iter` at random and compares each step with a cursor over the sorted `model`.
pub fn check_random_moves(
    iter: &mut impl InternalIterator,
    mut model: Vec<Entry>,
    rng: &mut StdRng,
    space: u32,
    moves: u32,
    context: &str,
) {
    sort(&mut model);
    let mut at: Option<usize> = None;
    for step in 0..moves {
        let key = random_key(rng, space);
        let (what, expected, on) = match (rng.random_range(0..10), at) {
            (0, _) => ("first", Some(0), iter.seek_to_first()),
            (1, _) => ("last", model.len().checked_sub(1), iter.seek_to_last()),
            (2, _) | (3, None) => {
                let seqno = rng.random_range(0..60);
                let to = model.partition_point(|e| compare(&e.0, e.1, &key, seqno).is_lt());
                ("seek", Some(to), iter.seek(&key, seqno))
            }
            (_, None) => (
                "seek_before",
                model.partition_point(|e| e.0 < key).checked_sub(1),
                iter.seek_before(&key),
            ),
            (4..=6, Some(at)) => ("prev", at.checked_sub(1), iter.prev()),
            (_, Some(at)) => ("next", Some(at + 1), iter.next()),
        };
        at = expected.filter(|&at| at < model.len());
        assert_eq!(on.unwrap(), at.is_some(), "{context} step {step} {what}");
        assert_eq!(iter.valid(), at.is_some(), "{context} step {step} {what}");
        if let Some(at) = at {
            let (key, seqno, kind, value) = &model[at];
            assert_eq!(
                iter.key(),
                InternalKey::new(key, *seqno, *kind),
                "{context} step {step} {what}"
            );
            let found = iter.value();
            assert_eq!(&[found.head, found.tail].concat(), value, "{context}");
        }
    }
}
