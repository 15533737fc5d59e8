//! Answers from the index of a file alone, without reading a data block: keys that divide a key
//! range into parts of about the same number of blocks, and a lower and an upper bound of the
//! number of tombstones in a key range.

use super::SstReader;
use crate::base::Result;
use crate::env::ReadClass;

/// Largest number of index partitions that are loaded to find split keys. If more lie in the range
/// and the reader does not keep them, the split keys are the last separators of partitions, which
/// the top index has.
const LOADS_MAX: usize = 4;

impl SstReader {
    /// At most `count` keys above `lower` and up to `upper` (`None`: no bound), ascending, with
    /// about the same number of blocks between any two neighbours. The keys are separators of
    /// blocks or index partitions, so a range of few blocks gives fewer keys. Reads no data block.
    ///
    /// # Errors
    /// Those of reading an index partition: `Corruption`, `Unsupported`, `Io`.
    pub fn split_keys(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        count: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let partitions = self.index().partitions() as usize;
        let number_of = |key: &[u8]| self.index().partition_of(key).map(|n| n as usize);
        let first = lower.map_or(Some(0), number_of);
        let Some(first) = first.filter(|&first| first < partitions) else {
            return Ok(Vec::new());
        };
        let last = upper.and_then(number_of).unwrap_or(partitions - 1);
        let inside = |key: &[u8]| {
            lower.is_none_or(|lower| key > lower) && upper.is_none_or(|upper| key <= upper)
        };
        let mut keys = Vec::new();
        if last - first >= LOADS_MAX && !self.index().is_whole() {
            let numbers = first..last;
            for number in spread(numbers.len(), count) {
                let key = self.index().last_separator((first + number) as u32);
                if inside(key) {
                    keys.push(key.to_vec());
                }
            }
            return Ok(keys);
        }
        let blocks = |number: usize| self.index().top(number as u32).blocks as usize;
        let total: usize = (first..=last).map(blocks).sum();
        let start = match lower {
            Some(key) => self
                .partition(first as u32, ReadClass::Index, true)?
                .find(key) as usize,
            None => 0,
        };
        let end = match upper {
            Some(key) => {
                let at = self
                    .partition(last as u32, ReadClass::Index, true)?
                    .find(key) as usize;
                total - blocks(last) + at.min(blocks(last))
            }
            None => total,
        };
        let (mut number, mut before) = (first, 0);
        for ordinal in spread(end.saturating_sub(start), count) {
            let ordinal = start + ordinal;
            while ordinal >= before + blocks(number) {
                before += blocks(number);
                number += 1;
            }
            let partition = self.partition(number as u32, ReadClass::Index, true)?;
            let key = partition.separator((ordinal - before) as u32);
            if inside(key) && keys.last().is_none_or(|last| last.as_slice() < key) {
                keys.push(key.to_vec());
            }
        }
        Ok(keys)
    }

    /// Lower and upper bound of the number of tombstones with keys from `lower` to below `upper`
    /// (`None`: no bound). The two numbers differ by the tombstones of the blocks in which `lower`
    /// and `upper` lie. Reads no data block.
    ///
    /// # Errors
    /// Those of reading an index partition: `Corruption`, `Unsupported`, `Io`.
    pub fn deletes_within(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<(u64, u64)> {
        let partitions = self.index().partitions();
        let number_of = |key: &[u8]| self.index().partition_of(key).unwrap_or(partitions);
        let (first, last) = (lower.map_or(0, number_of), upper.map(number_of));
        let (mut least, mut most) = (0, 0);
        for number in first..last.map_or(partitions, |last| partitions.min(last + 1)) {
            let lower = lower.filter(|_| number == first);
            let upper = upper.filter(|_| Some(number) == last);
            if lower.is_none() && upper.is_none() {
                let whole = self.index().top(number).stats.deletes;
                least += whole;
                most += whole;
                continue;
            }
            let partition = self.partition(number, ReadClass::Index, true)?;
            let from = lower.map_or(0, |key| partition.find(key));
            let to = upper.map(|key| partition.find(key));
            let blocks = self.index().top(number).blocks;
            for block in from..to.map_or(blocks, |to| blocks.min(to + 1)) {
                let deletes = partition.block(block).stats.deletes;
                let cut = (lower.is_some() && block == from) || Some(block) == to;
                least += if cut { 0 } else { deletes };
                most += deletes;
            }
        }
        Ok((least, most))
    }
}

/// At most `count` numbers below `total`, in ascending order and evenly spread.
fn spread(total: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(total);
    (0..count).map(move |i| total * (2 * i + 1) / (2 * count))
}
