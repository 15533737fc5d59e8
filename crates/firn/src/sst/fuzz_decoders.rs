//! Runs every decoder of SSTs on arbitrary bytes, as if their checksums were right: for fuzzing and
//! tests.

use super::block::{Block, BlockIter};
use super::decode_error::Decoded;
use super::filter::Filter;
use super::format::{BlockKind, FOOTER_LEN, Footer};
use super::index::Index;
use super::properties::Properties;
use crate::base::checksum;
use std::sync::Arc;

/// Decodes `raw` as each kind of block, then looks `key` up in the result and walks over all of its
/// entries. A decoder must neither panic nor run for ever, whatever the bytes are.
#[doc(hidden)]
pub fn exercise_decoders(raw: &[u8], key: &[u8]) {
    let hash = checksum::xxh3(key);
    let _ = Filter::decode(raw).map(|filter| filter.may_contain(hash));
    let _ = Properties::decode(raw);
    if let Some(footer) = raw.first_chunk::<FOOTER_LEN>() {
        let _ = Footer::decode(footer, 1, raw.len() as u64);
    }
    if let Ok(top) = Index::decode_top(raw) {
        let _ = top.with_all(|number, data_end| {
            let partition = top.decode(number, data_end, raw, None);
            partition.map(Arc::new)
        });
    }
    for kind in [BlockKind::RowWise, BlockKind::Sectioned] {
        let Ok(block) = Block::new(kind, raw.to_vec()) else {
            continue;
        };
        let block = Arc::new(block);
        let _ = block.get(key, hash, 1).map(drop);
        // A damaged block may end the walk with an error at an entry that the lookup above did not
        // come to. Ignore it: errors are allowed here.
        let _ = walk(&block, key);
    }
}

fn walk(block: &Arc<Block>, key: &[u8]) -> Decoded<()> {
    let mut cursor = BlockIter::default();
    cursor.enter(block.clone());
    let _ = cursor.seek(key, 1)?;
    let mut more = cursor.seek_to_first()?;
    while more {
        let found = cursor.key().user_key.to_vec();
        let _ = cursor.value().len();
        let _ = block.get(&found, checksum::xxh3(&found), cursor.key().seqno)?;
        more = cursor.next()?;
    }
    let mut more = cursor.seek_to_last()?;
    while more {
        more = cursor.prev()?;
    }
    Ok(())
}
