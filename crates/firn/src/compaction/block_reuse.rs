//! Block reuse: a compaction copies stored blocks where merging would not change them.
//!
//! A job merges its inputs entry by entry. A block need not be merged if the next entry of the
//! merge is its first entry, and all keys of the block are smaller than the next key of every other
//! input. If the drop rule also keeps each of its entries unchanged, the job copies the stored
//! block into the output without compressing it again. Example: one input has the blocks a–f, g–m
//! and n–z, another input has the key h. The first and the third block are copied, the second is
//! merged.

use super::drop_rule::DropRule;
use super::input_files::InputFiles;
use super::job_stats::JobStats;
use super::output_files::Outputs;
use crate::base::{InternalIterator, Result};
use crate::iter::{ConcatIter, MergeIter};

/// If a block begins at the position of `source` and need not be merged, copies the block, moves
/// `source` behind it, and returns whether another entry follows. Otherwise returns `None` and does
/// not move `source`.
pub(super) fn copy_block(
    source: &mut MergeIter<ConcatIter<InputFiles>>,
    rule: &mut DropRule<'_>,
    outputs: &mut Outputs<'_>,
    stats: &mut JobStats,
) -> Result<Option<bool>> {
    let input = &source.children()[source.current_child()];
    let (number, file) = input.source();
    let Some(mut block) = file.block_begun() else {
        return Ok(None);
    };
    let meta = &input.opener().0[number];
    if let Some(seqno) = meta.external_seqno {
        // The file is an ingested one. Its entries have the seqno of the commit, but only the
        // manifest records that seqno, so a copied block would lose it. Copy the block only if its
        // stored seqnos are 0 and the drop rule would set them to 0.
        if !(block.zeroed && rule.zeroes(seqno)) {
            return Ok(None);
        }
        (block.min_seqno, block.max_seqno) = (0, 0);
    }
    let first = file.key().user_key;
    // The block's separator is at or above all keys of the block. If the next key of all other
    // inputs (the rival) is above the separator, it is above the whole block.
    let apart = source.rival().is_none_or(|rival| block.separator < rival);
    if !apart
        || !outputs.is_like(meta)
        || !rule.keeps_all(first, &block, meta.superseded)
        || outputs.parts(first, block.separator)
    {
        return Ok(None);
    }
    let (from, ahead) = (file.residence(), file.bytes_ahead(source.rival()));
    let first = first.to_vec();
    let block = source.front_mut().source_mut().stored_block()?;
    let Some(last) = outputs.copy(&first, &block, ahead, from)? else {
        return Ok(None);
    };
    rule.passed(last);
    stats.count_copy(block.entries(), block.len());
    source
        .advance(|input| input.advance(|file| file.next_block()))
        .map(Some)
}

#[cfg(test)]
mod tests;
