//! A model of a memcached node: the commands that the pool sends, memory, eviction.

use super::faults::Faults;
use crate::random::SplitMix64;
use std::collections::BTreeMap;
use std::io::Write as _;

/// Bytes that an item takes beside its value.
const ITEM_BYTES: u64 = 80;
/// Time until an answer, microseconds, and its spread.
const DELAY_US: u64 = 20;
const SPREAD_US: u64 = 15;
/// Old values that a node keeps to lie with.
const OLD_MAX: usize = 500;

pub(super) struct MemNode {
    items: BTreeMap<String, Item>,
    old: BTreeMap<String, Vec<u8>>,
    limit_bytes: u64,
    used_bytes: u64,
    evictions: u64,
    touches: u64,
    pub(super) gets: u64,
    pub(super) stopped: bool,
    pub(super) faults: Faults,
}

struct Item {
    value: Vec<u8>,
    expires_us: u64,
    touched: u64,
}

/// What a node sends.
pub(super) struct NodeAnswer {
    pub(super) bytes: Vec<u8>,
    pub(super) delay_us: u64,
    pub(super) resets: bool,
}

impl MemNode {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            items: BTreeMap::new(),
            old: BTreeMap::new(),
            limit_bytes,
            used_bytes: 0,
            evictions: 0,
            touches: 0,
            gets: 0,
            stopped: false,
            faults: Faults::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn evict_all(&mut self) {
        self.items.clear();
        self.used_bytes = 0;
    }

    /// Executes the commands of `input` that are there in full, and removes them from it.
    pub(super) fn execute(
        &mut self,
        input: &mut Vec<u8>,
        now_us: u64,
        random: &mut SplitMix64,
    ) -> NodeAnswer {
        let mut bytes = Vec::new();
        while let Some(used) = self.execute_one(input, now_us, random, &mut bytes) {
            input.drain(..used);
        }
        let mut resets = false;
        let faults = self.faults;
        if !bytes.is_empty() {
            if random.per_mille(faults.garbage) {
                let junk = (0..1 + random.below(20))
                    .map(|_| random.draw() as u8)
                    .collect::<Vec<_>>();
                bytes.splice(0..0, junk);
            }
            resets = random.per_mille(faults.reset);
            if resets || random.per_mille(faults.cut) {
                // One byte at least, so that the closing is seen.
                bytes.truncate(1 + random.below(bytes.len() as u64) as usize);
            }
        }
        let mut delay_us = DELAY_US + random.below(SPREAD_US);
        if random.per_mille(faults.slow) {
            delay_us += random.below(faults.slow_us.max(1));
        }
        delay_us += (bytes.len() as u64)
            .checked_div(faults.bytes_per_us)
            .unwrap_or(0);
        NodeAnswer {
            bytes,
            delay_us,
            resets,
        }
    }

    /// Returns the length of the command, or none if it is not there in full.
    fn execute_one(
        &mut self,
        input: &[u8],
        now_us: u64,
        random: &mut SplitMix64,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let end = input.windows(2).position(|pair| pair == b"\r\n")?;
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let mut used = end + 2;
        match words[..] {
            ["mn"] => out.extend_from_slice(b"MN\r\n"),
            ["stats"] => self.stats(out),
            ["mg", key, "b", "v", "q", opaque] => self.get(key, opaque, now_us, random, out),
            ["md", key, "b", "q"] => {
                self.remove(key);
            }
            ["ms", key, len, "b", "q", ..] => {
                let len: usize = len.parse().ok()?;
                let value = input.get(used..used + len)?.to_vec();
                input.get(used + len..used + len + 2)?;
                used += len + 2;
                let ttl = words.get(5).and_then(|flag| flag.strip_prefix('T'));
                let ttl_us = ttl
                    .and_then(|ttl| ttl.parse::<u64>().ok())
                    .map(|ttl| ttl * 1_000_000);
                self.put(
                    key,
                    value,
                    ttl_us.map_or(u64::MAX, |ttl_us| now_us + ttl_us),
                    out,
                );
            }
            _ => out.extend_from_slice(b"ERROR\r\n"),
        }
        Some(used)
    }

    fn stats(&self, out: &mut Vec<u8>) {
        let counters = [
            ("pid", 1),
            ("bytes", self.used_bytes),
            ("limit_maxbytes", self.limit_bytes),
            ("curr_items", self.items.len() as u64),
            ("evictions", self.evictions),
        ];
        for (name, value) in counters {
            let _ = write!(out, "STAT {name} {value}\r\n");
        }
        out.extend_from_slice(b"END\r\n");
    }

    fn put(&mut self, key: &str, value: Vec<u8>, expires_us: u64, out: &mut Vec<u8>) {
        let bytes = value.len() as u64 + ITEM_BYTES;
        if bytes > self.limit_bytes {
            out.extend_from_slice(b"SERVER_ERROR object too large for cache\r\n");
            return;
        }
        self.remove(key);
        while self.used_bytes + bytes > self.limit_bytes {
            let oldest = self.items.iter().min_by_key(|item| item.1.touched);
            let Some(oldest) = oldest.map(|item| item.0.clone()) else {
                break;
            };
            self.remove(&oldest);
            self.evictions += 1;
        }
        self.used_bytes += bytes;
        self.touches += 1;
        self.items.insert(
            key.into(),
            Item {
                value,
                expires_us,
                touched: self.touches,
            },
        );
    }

    fn remove(&mut self, key: &str) {
        if let Some(item) = self.items.remove(key) {
            self.used_bytes -= item.value.len() as u64 + ITEM_BYTES;
            if self.old.len() >= OLD_MAX {
                self.old.pop_first();
            }
            self.old.insert(key.into(), item.value);
        }
    }

    fn get(
        &mut self,
        key: &str,
        opaque: &str,
        now_us: u64,
        random: &mut SplitMix64,
        out: &mut Vec<u8>,
    ) {
        self.gets += 1;
        let faults = self.faults;
        let expired = self
            .items
            .get(key)
            .is_some_and(|item| item.expires_us <= now_us);
        if expired || random.per_mille(faults.evict) {
            self.remove(key);
        }
        self.touches += 1;
        let mut value = match self.items.get_mut(key) {
            Some(item) => {
                item.touched = self.touches;
                item.value.clone()
            }
            // A lie about a name that the node does not have.
            None if random.per_mille(faults.other) => Vec::new(),
            None => match self.old.get(key) {
                Some(old) if random.per_mille(faults.old) => old.clone(),
                _ => return,
            },
        };
        let mut opaque = opaque.to_owned();
        if (value.is_empty() || random.per_mille(faults.other)) && !self.items.is_empty() {
            let nth = random.below(self.items.len() as u64) as usize;
            value = self
                .items
                .values()
                .nth(nth)
                .map_or(value, |item| item.value.clone());
        }
        if random.per_mille(faults.old) {
            value = self.old.get(key).cloned().unwrap_or(value);
        }
        if random.per_mille(faults.flip) && !value.is_empty() {
            let at = random.below(value.len() as u64) as usize;
            value[at] ^= 1 << random.below(8);
        }
        if random.per_mille(faults.resize) {
            value.resize(random.below(2 * value.len() as u64 + 2) as usize, 0);
        }
        if random.per_mille(faults.token) {
            let token: u64 = opaque[1..].parse().unwrap_or(0);
            opaque = format!("O{}", token.wrapping_add(random.below(5)).saturating_sub(2));
        }
        for _ in 0..1 + u32::from(random.per_mille(faults.double)) {
            let _ = write!(out, "VA {} {opaque}\r\n", value.len());
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
    }
}
