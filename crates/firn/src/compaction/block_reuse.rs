//! Block reuse: copies stored blocks instead of merging their entries.
//!
//! A job merges its inputs entry by entry. A block need not be merged if the front source stands at
//! its first entry and all of it lies below the next key of every other source. If the drop rule
//! also keeps each of its entries unchanged, the job copies the stored block into the output,
//! without compressing it again. Example: one input has the blocks a–f, g–m and n–z, another one
//! has the key h. The first and the third block are copied, the second is merged.

use super::drop_rule::DropRule;
use super::input_files::InputFiles;
use super::job_stats::JobStats;
use super::output::Outputs;
use crate::base::{InternalIterator, Result};
use crate::iter::{ConcatIter, MergeIter};

/// Copies the block that begins under `source` and moves behind it; returns whether there is
/// another entry. Returns `None`, without a move, if no block begins there or if it must be merged.
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
        // A copy keeps the stored seqnos, not the external one, so the output must want 0 and 0
        // must be stored.
        if !(block.zeroed && rule.zeroes(seqno)) {
            return Ok(None);
        }
        (block.min_seqno, block.max_seqno) = (0, 0);
    }
    let first = file.key().user_key;
    // The separator is at or above all keys of the block, so a rival above it is above the block.
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
