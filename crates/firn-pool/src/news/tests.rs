use super::*;
use crate::random::SplitMix64;

/// What a pool has, without losing anything.
#[derive(Default)]
struct Values(BTreeMap<Name, Vec<u8>>);

impl Values {
    fn heads(&self) -> Vec<Option<Head>> {
        let head = |slot| {
            self.0
                .get(&head_name(slot))
                .and_then(|bytes| decode_head(bytes))
        };
        (0..SLOTS).map(head).collect()
    }

    fn turn(&mut self, news: &mut News) -> (Vec<u64>, Unread) {
        let unread = news.on_heads(&self.heads());
        let page = |(server, page): &(u64, u64)| {
            decode_page(*server, *page, self.0.get(&page_name(*server, *page))?)
        };
        let blocks = unread.pages.iter().filter_map(page).flatten().collect();
        self.0.extend(news.take_unwritten());
        (blocks, unread)
    }
}

#[test]
fn servers_learn_each_block_of_the_others_once() {
    let mut values = Values::default();
    // 5 and 69 want the same slot.
    let mut servers = [News::new(5), News::new(69), News::new(7)];
    values.turn(&mut servers[0]);
    values.turn(&mut servers[1]);
    values.turn(&mut servers[2]);
    assert_eq!(values.heads().iter().flatten().count(), 3);
    servers[0].announce(100);
    servers[0].announce(101);
    servers[1].announce(200);
    assert_eq!(values.turn(&mut servers[0]).0, []);
    assert_eq!(values.turn(&mut servers[1]).0, [100, 101]);
    assert_eq!(values.turn(&mut servers[2]).0, [100, 101, 200]);
    assert_eq!(values.turn(&mut servers[0]).0, [200]);
    for server in &mut servers {
        assert_eq!(values.turn(server).0, []);
    }
}

#[test]
fn a_page_is_never_written_twice_over_a_restart() {
    let mut values = Values::default();
    let mut first = News::new(5);
    let mut reader = News::new(6);
    for block in 0..3 {
        first.announce(block);
        values.turn(&mut first);
        values.turn(&mut reader);
    }
    let mut second = News::new(5);
    second.announce(9);
    let (own, _) = values.turn(&mut second);
    assert_eq!(own, [0, 1, 2], "it reads what it wrote before");
    assert_eq!(values.turn(&mut reader).0, [9]);
}

#[test]
fn many_blocks_are_several_pages_and_too_many_are_left_out() {
    let mut values = Values::default();
    let (mut writer, mut reader) = (News::new(1), News::new(2));
    values.turn(&mut writer);
    values.turn(&mut reader);
    for block in 0..PENDING_MAX as u64 + 10 {
        writer.announce(block);
    }
    values.turn(&mut writer);
    let (blocks, unread) = values.turn(&mut reader);
    assert_eq!(blocks, (0..PENDING_MAX as u64).collect::<Vec<_>>());
    assert_eq!(unread.pages.len(), 8);
}

#[test]
fn whoever_was_away_reads_the_pages_that_are_kept() {
    let mut values = Values::default();
    let (mut writer, mut reader) = (News::new(1), News::new(2));
    values.turn(&mut reader);
    for block in 0..200 {
        writer.announce(block);
        values.turn(&mut writer);
    }
    assert_eq!(values.turn(&mut reader).0, (136..200).collect::<Vec<_>>());
    // The writer's head is lost, and it begins anew.
    values.0.clear();
    let mut writer = News::new(1);
    writer.announce(500);
    values.turn(&mut writer);
    assert_eq!(values.turn(&mut reader).0, [500]);
}

#[test]
fn the_image_is_written_in_turns_and_read_by_whoever_is_new() {
    let mut values = Values::default();
    let (mut writer, mut reader) = (News::new(1), News::new(2));
    values.turn(&mut writer);
    assert_eq!(writer.take_image(3, false, 2), 0..0);
    assert_eq!(writer.take_image(3, true, 2), 0..2);
    values.turn(&mut writer);
    assert_eq!(values.turn(&mut reader).1.images, [], "it is not complete");
    assert_eq!(writer.take_image(3, false, 2), 2..3);
    assert_eq!(writer.take_image(3, false, 2), 0..0);
    values.turn(&mut writer);
    let image = [(1, 0), (1, 1), (1, 2)];
    assert_eq!(values.turn(&mut News::new(3)).1.images, image);
    assert_eq!(
        values.turn(&mut News::new(1)).1.images,
        image,
        "its own after a restart"
    );
    reader.forget_read();
    assert_eq!(values.turn(&mut reader).1.images, image);
}

/// Their checksums are right.
#[test]
fn heads_that_lie_do_no_harm() {
    let mut values = Values::default();
    let head = |server, next| Head {
        server,
        first: next,
        next,
        image_pages: 0,
    };
    for next in [u64::MAX, 1 << 48] {
        assert_eq!(decode_head(&encode_head(&head(5, next))), None);
    }
    let huge = Head {
        image_pages: u64::MAX,
        ..head(5, 1)
    };
    assert_eq!(decode_head(&encode_head(&huge)), None);
    values
        .0
        .insert(head_name(9), encode_head(&head(5, (1 << 48) - 1)));
    let mut news = News::new(5);
    news.announce(1);
    values.turn(&mut news);
    let mut news = News::new(5);
    (0..3).for_each(|_| drop(values.turn(&mut news)));
    for round in 0..1000 {
        for slot in 10..SLOTS {
            values.0.insert(
                head_name(slot),
                encode_head(&head(1000 + round * SLOTS + slot, 2)),
            );
        }
        values.turn(&mut news);
    }
    assert!(news.seen.len() <= SLOTS as usize);
}

#[test]
fn damaged_news_are_no_news() {
    let head = encode_head(&Head {
        server: 1,
        first: 2,
        next: 3,
        image_pages: 4,
    });
    let page = encode_page(1, 2, &[3, 4]);
    let image = encode_image(1, 0, 10, &[7; 16]);
    assert_eq!(decode_page(1, 2, &page), Some(vec![3, 4]));
    assert_eq!(decode_image(1, 10, &image), Some((0, &[7; 16][..])));
    assert_eq!(decode_page(1, 3, &page), None);
    assert_eq!(decode_page(2, 2, &page), None);
    assert_eq!(decode_image(2, 10, &image), None);
    assert_eq!(decode_image(1, 11, &image), None, "a table of another size");
    let mut random = SplitMix64::new(1);
    for bytes in [head, page, image] {
        for len in 0..bytes.len() {
            assert!(
                decode_head(&bytes[..len]).is_none() && decode_page(1, 2, &bytes[..len]).is_none()
            );
            assert!(decode_image(1, 10, &bytes[..len]).is_none());
            let mut bytes = bytes.clone();
            bytes[len] ^= 1 << random.below(8);
            assert!(decode_head(&bytes).is_none() && decode_page(1, 2, &bytes).is_none());
            assert!(decode_image(1, 10, &bytes).is_none());
        }
    }
}
