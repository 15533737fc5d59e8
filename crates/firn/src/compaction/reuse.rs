//! Blocks that a job copies as stored.
//!
//! The inputs are merged entry by entry. Whenever the source in front stands at the start of a block
//! and all of the block lies below the next key of every other source, merging can do nothing to it;
//! and if the drop rule keeps each of its entries as it is, the block goes into the output as it is
//! stored. An example: of a file with blocks a–f, g–m, n–z and one with the key h, the first and the
//! third block are copied, the second is merged.

use super::drop_rule::DropRule;
use super::job::{Files, JobStats};
use super::output::Outputs;
use crate::base::{InternalIterator, Result};
use crate::iter::{ConcatIter, MergeIter};

/// Copies the block that begins under `source`, and moves on behind it; whether there is an entry.
/// `None`, without a move, if no block begins there, or it must be merged.
pub(super) fn copy_block(
    source: &mut MergeIter<ConcatIter<Files>>,
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
        // A copy shows what is stored: only the 0 that the output is to hold.
        if !(block.zeroed && rule.zeroes(seqno)) {
            return Ok(None);
        }
        (block.min_seqno, block.max_seqno) = (0, 0);
    }
    let first = file.key().user_key;
    // The separator is at or above all keys of the block.
    let apart = source.rival().is_none_or(|rival| block.separator < rival);
    if !apart
        || !outputs.is_like(meta)
        || !rule.keeps_all(first, &block, meta.superseded)
        || outputs.parts(first, block.separator)
    {
        return Ok(None);
    }
    let (cached, ahead) = (file.is_cached(), file.bytes_ahead(source.rival()));
    let first = first.to_vec();
    let block = source.front_mut().source_mut().stored_block()?;
    let Some(last) = outputs.copy(&first, &block, ahead, cached)? else {
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
