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

/// The number of announcements, and the length of all queues.
fn lens(announced: &AnnouncedBlocks) -> (usize, usize) {
    let shards = announced.shards.iter().map(|shard| shard.lock());
    let (blocks, queued) = shards.fold((0, 0), |(blocks, queued), shard| {
        (blocks + shard.blocks.len(), queued + shard.order.len())
    });
    assert_eq!(announced.blocks.load(Ordering::Relaxed), blocks);
    (blocks, queued)
}

#[test]
fn an_announcement_is_taken_once_and_by_its_name() {
    let announced = AnnouncedBlocks::default();
    assert_eq!(announced.take(&name(0)), None);
    announced.keep(name(0), pool(b"abc"), 0);
    announced.keep(name(0), AnnouncedFrom::File, 0);
    announced.keep(name(2), AnnouncedFrom::File, 0);
    assert_eq!(announced.take(&name(1)), None);
    assert_eq!(announced.take(&name(0)), Some(pool(b"abc")));
    assert_eq!(announced.take(&name(0)), None);
    announced.keep(name(0), AnnouncedFrom::File, 0);
    assert_eq!(announced.take(&name(0)), Some(AnnouncedFrom::File));
    assert_eq!(announced.take(&name(2)), Some(AnnouncedFrom::File));
    assert_eq!(lens(&announced).0, 0);
}

#[test]
fn blocks_that_nobody_reads_make_room_for_newer_ones() {
    let announced = AnnouncedBlocks::default();
    let block = vec![7; 100_000];
    for offset in 0..1000 {
        announced.keep(name(offset), pool(&block), 0);
    }
    assert_eq!(announced.take(&name(999)), Some(pool(&block)));
    assert_eq!(announced.take(&name(0)), None);
    let kept = lens(&announced).0;
    assert!(
        kept * block.len() <= SHARDS * SHARD_BYTES && kept > 200,
        "{kept}"
    );
    announced.clear();
    assert_eq!(lens(&announced), (0, 0));
}

#[test]
fn announcements_that_nobody_takes_are_bounded_and_expire() {
    let announced = AnnouncedBlocks::default();
    for offset in 0..300_000 {
        announced.keep(name(offset), AnnouncedFrom::File, offset);
    }
    let most = SHARDS * SHARD_BYTES / OVERHEAD;
    let (kept, queued) = lens(&announced);
    assert!(kept <= most && kept > most / 2, "{kept} of {most}");
    assert!(queued <= 2 * kept + SHARDS * (SHARDS + 1), "{queued}");
    // Each shard drops what is too old when something comes.
    for offset in 300_000..301_000 {
        announced.keep(name(offset), AnnouncedFrom::File, 2 * KEPT_US);
    }
    assert_eq!(lens(&announced).0, 1000);
    assert_eq!(announced.take(&name(299_999)), None);
}

#[test]
fn what_is_taken_leaves_no_queue() {
    let announced = AnnouncedBlocks::default();
    announced.keep(name(0), AnnouncedFrom::File, 0);
    for offset in 1..100_000 {
        announced.keep(name(offset), AnnouncedFrom::File, 0);
        assert!(announced.take(&name(offset)).is_some());
    }
    let (kept, queued) = lens(&announced);
    assert_eq!(kept, 1);
    assert!(queued < 1000, "{queued}");
}
