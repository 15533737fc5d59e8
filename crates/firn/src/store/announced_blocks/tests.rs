use super::*;

fn name(offset: u64) -> BlockName {
    BlockName::Block {
        file: 1,
        checksum: 2,
        offset,
    }
}

#[test]
fn a_block_is_taken_once_and_by_its_name() {
    let announced = AnnouncedBlocks::default();
    let mut stored = [0; 3];
    assert!(!announced.take(&name(0), &mut stored));
    announced.keep(name(0), b"abc");
    announced.keep(name(0), b"abc");
    assert!(!announced.take(&name(1), &mut stored));
    assert!(announced.take(&name(0), &mut stored));
    assert_eq!(&stored, b"abc");
    assert!(!announced.take(&name(0), &mut stored));
    assert_eq!(announced.blocks.load(Ordering::Relaxed), 0);
    // A block of another length than its reader wants is dropped.
    announced.keep(name(0), b"abcd");
    assert!(!announced.take(&name(0), &mut stored));
    assert_eq!(announced.blocks.load(Ordering::Relaxed), 0);
}

#[test]
fn blocks_that_nobody_reads_make_room_for_newer_ones() {
    let announced = AnnouncedBlocks::default();
    let block = vec![7; 100_000];
    for offset in 0..1000 {
        announced.keep(name(offset), &block);
    }
    let mut stored = vec![0; block.len()];
    assert!(announced.take(&name(999), &mut stored));
    assert_eq!(stored, block);
    assert!(!announced.take(&name(0), &mut stored));
    let kept = announced.blocks.load(Ordering::Relaxed);
    let counted: usize = announced.shards.iter().map(|s| s.lock().blocks.len()).sum();
    assert_eq!(kept, counted);
    assert!(
        kept * block.len() <= SHARDS * SHARD_BYTES && kept > 200,
        "{kept}"
    );
    announced.clear();
    assert_eq!(announced.blocks.load(Ordering::Relaxed), 0);
}
