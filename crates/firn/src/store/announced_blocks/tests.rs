use super::*;

fn name(offset: u64) -> BlockName {
    BlockName::Block {
        file: 1,
        checksum: 2,
        offset,
    }
}

fn pool(stored: &[u8]) -> AnnouncedFrom {
    AnnouncedFrom::Pool(stored.into())
}

#[test]
fn an_announcement_is_taken_once_and_by_its_name() {
    let announced = AnnouncedBlocks::default();
    assert_eq!(announced.take(&name(0)), None);
    announced.keep(name(0), pool(b"abc"));
    announced.keep(name(0), AnnouncedFrom::File);
    announced.keep(name(2), AnnouncedFrom::File);
    assert_eq!(announced.take(&name(1)), None);
    assert_eq!(announced.take(&name(0)), Some(pool(b"abc")));
    assert_eq!(announced.take(&name(0)), None);
    assert_eq!(announced.take(&name(2)), Some(AnnouncedFrom::File));
    assert_eq!(announced.blocks.load(Ordering::Relaxed), 0);
}

#[test]
fn blocks_that_nobody_reads_make_room_for_newer_ones() {
    let announced = AnnouncedBlocks::default();
    let block = vec![7; 100_000];
    for offset in 0..1000 {
        announced.keep(name(offset), pool(&block));
    }
    assert_eq!(announced.take(&name(999)), Some(pool(&block)));
    assert_eq!(announced.take(&name(0)), None);
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
