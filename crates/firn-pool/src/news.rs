//! News: how servers tell each other, through the pool, what they have put into it.
//!
//! ```text
//! head of slot s     "FNH1" · server 8 · first page 8 · next page 8 · image pages 8 · checksum 8
//! page p of a server "FNP1" · server 8 · page 8 · 8 bytes for each block · checksum 8
//! image page i       "FNI1" · server 8 · first bucket 8 · buckets 8 · bucket words · checksum 8
//! ```
//!
//! A server has one of [`SLOTS`] slots, whose names all servers know. Once a second it reads all
//! heads in one batch, then the pages that are new since the last time, and writes a page of what
//! it has put itself. The image of its whole table is written every ten minutes, a few pages at a
//! time; whoever sees a server for the first time reads it.
//!
//! All of it is a hint. A page that is lost or wrong costs misses and nothing else. News
//! stay for a week, since the pool outlives servers: whoever starts alone finds the last image.

use crate::name::Name;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Servers that may share a pool and tell each other news.
pub const SLOTS: u64 = 64;
/// Blocks of a page.
pub const PAGE_BLOCKS: usize = 8192;
/// Pages that a head offers.
const PAGES_KEPT: u64 = 64;
/// Bucket words of an image page.
pub const IMAGE_BUCKETS: u64 = 16_384;
/// Blocks that wait to be announced, at most.
const PENDING_MAX: usize = 8 * PAGE_BLOCKS;

/// Numbers of pages are smaller: a head that says otherwise lies.
const NUMBER_MAX: u64 = 1 << 48;
/// As [`NUMBER_MAX`], of images.
const IMAGE_PAGES_MAX: u64 = 1 << 16;
/// Longest bytes of any news.
pub const NEWS_LEN_MAX: usize = 8 * IMAGE_BUCKETS as usize + 64;
/// How long news stay without being written again, seconds: a week.
pub const TTL_S: u32 = 7 * 86_400;

const HEAD: u64 = 0;
const PAGE: u64 = 1;
const IMAGE: u64 = 2;

/// The head of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Whose slot it is.
    pub server: u64,
    /// The oldest page that is offered.
    pub first: u64,
    /// The page that comes next.
    pub next: u64,
    /// Pages of the image; 0 while there is none.
    pub image_pages: u64,
}

/// Name of the head of a slot.
pub fn head_name(slot: u64) -> Name {
    Name::of_news(HEAD, slot, 0)
}

/// Name of a page.
pub fn page_name(server: u64, page: u64) -> Name {
    Name::of_news(PAGE, server, page)
}

/// Name of an image page.
pub fn image_name(server: u64, page: u64) -> Name {
    Name::of_news(IMAGE, server, page)
}

/// What this server has read and has to say.
pub struct News {
    server: u64,
    slot: u64,
    own: Option<Head>,
    pending: Vec<u64>,
    seen: BTreeMap<u64, u64>,
    image_at: Option<u64>,
}

/// A page: server and number.
pub type PageId = (u64, u64);

/// What is to be read after the heads.
/// It grows by what is new, and the background thread takes a few pages of it at a time.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Unread {
    /// Pages: server and number.
    pub pages: Vec<PageId>,
    /// Image pages: server and number.
    pub images: Vec<PageId>,
}

impl News {
    /// Nothing is read.
    pub fn new(server: u64) -> Self {
        Self {
            server,
            slot: server % SLOTS,
            own: None,
            pending: Vec::new(),
            seen: BTreeMap::new(),
            image_at: None,
        }
    }

    /// The number of this server.
    pub fn server(&self) -> u64 {
        self.server
    }

    /// A block was put. Announced with the next page, unless too many wait.
    pub fn announce(&mut self, short: u64) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push(short);
        }
    }

    /// Takes the heads of all slots, by slot. Returns what is new in them.
    pub fn on_heads(&mut self, heads: &[Option<Head>]) -> Unread {
        let mut unread = Unread::default();
        let mine = heads
            .iter()
            .flatten()
            .find(|head| head.server == self.server)
            .copied();
        if self.own.is_none() {
            // The pages of this server's last run go on, and it reads its own image.
            self.own = Some(mine.unwrap_or(Head {
                server: self.server,
                first: 1,
                next: 1,
                image_pages: 0,
            }));
            self.seen.remove(&self.server);
            if let Some(mine) = mine {
                unread.read(self.seen.get(&self.server).copied(), &mine);
            }
        }
        self.choose_slot(heads);
        for head in heads
            .iter()
            .flatten()
            .filter(|head| head.server != self.server)
        {
            // One that begins anew has lost its head, or its server's disk.
            let seen = self
                .seen
                .get(&head.server)
                .copied()
                .filter(|seen| *seen <= head.next);
            unread.read(seen, head);
            self.seen.insert(head.server, head.next);
        }
        // Servers that are gone, or were never there, are forgotten.
        let is_there = |server: &u64| heads.iter().flatten().any(|head| head.server == *server);
        self.seen.retain(|server, _| is_there(server));
        unread
    }

    /// Keeps the slot if it is free or this server's, else takes the next one that is free.
    fn choose_slot(&mut self, heads: &[Option<Head>]) {
        let owner = |slot: u64| {
            heads
                .get(slot as usize)
                .copied()
                .flatten()
                .map(|head| head.server)
        };
        let slots = (0..SLOTS).map(|step| (self.slot + step) % SLOTS);
        let mine = slots.clone().find(|slot| owner(*slot) == Some(self.server));
        let free = slots.clone().find(|slot| owner(*slot).is_none());
        self.slot = mine.or(free).unwrap_or(self.slot);
    }

    /// The values to write now: pages first, the head last. `None` before the heads were read.
    pub fn take_unwritten(&mut self) -> Vec<(Name, Vec<u8>)> {
        let Some(own) = &mut self.own else {
            return Vec::new();
        };
        let mut values = Vec::new();
        let pending = std::mem::take(&mut self.pending);
        for blocks in pending.chunks(PAGE_BLOCKS) {
            values.push((
                page_name(self.server, own.next),
                encode_page(self.server, own.next, blocks),
            ));
            own.next += 1;
        }
        own.first = own.first.max(own.next.saturating_sub(PAGES_KEPT));
        values.push((head_name(self.slot), encode_head(own)));
        values
    }

    /// The next pages of the image of `pages` to write, at most `at_once` of them. It begins anew
    /// if
    /// `is_due`.
    pub fn take_image(&mut self, pages: u64, is_due: bool, at_once: u64) -> std::ops::Range<u64> {
        if is_due && self.image_at.is_none() {
            self.image_at = Some(0);
        }
        let (Some(at), Some(own)) = (self.image_at, &mut self.own) else {
            return 0..0;
        };
        let end = (at + at_once).min(pages);
        self.image_at = Some(end);
        if end == pages {
            own.image_pages = pages;
            self.image_at = None;
        }
        at.min(end)..end
    }

    /// The table was replaced by an empty one: all images are read again.
    pub fn forget_read(&mut self) {
        self.seen.clear();
        self.own = None;
    }
}

impl Unread {
    /// Whether all is read.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.images.is_empty()
    }

    /// Adds what is new, as long as no more than `max` pages wait.
    pub fn extend(&mut self, new: Unread, max: usize) {
        for (list, new) in [(&mut self.pages, new.pages), (&mut self.images, new.images)] {
            let room = max.saturating_sub(list.len());
            list.extend(new.into_iter().take(room));
        }
    }

    /// Takes up to `count` pages and image pages.
    pub fn take(&mut self, count: usize) -> (Vec<PageId>, Vec<PageId>) {
        let take = |list: &mut Vec<_>| list.drain(..count.min(list.len())).collect();
        (take(&mut self.pages), take(&mut self.images))
    }

    /// `seen` is the first page of the server that was not read yet.
    fn read(&mut self, seen: Option<u64>, head: &Head) {
        if seen.is_none() && head.image_pages > 0 {
            self.images
                .extend((0..head.image_pages).map(|page| (head.server, page)));
        }
        let oldest = head.first.max(head.next.saturating_sub(PAGES_KEPT));
        let from = seen.unwrap_or(0).max(oldest);
        self.pages
            .extend((from..head.next).map(|page| (head.server, page)));
    }
}

/// The bytes of a head.
pub fn encode_head(head: &Head) -> Vec<u8> {
    encode(
        b"FNH1",
        &[head.server, head.first, head.next, head.image_pages],
    )
}

/// The head in some bytes.
pub fn decode_head(bytes: &[u8]) -> Option<Head> {
    match decode(b"FNH1", bytes)?[..] {
        [server, first, next, image_pages]
            if first <= next && next < NUMBER_MAX && image_pages < IMAGE_PAGES_MAX =>
        {
            Some(Head {
                server,
                first,
                next,
                image_pages,
            })
        }
        _ => None,
    }
}

/// The bytes of a page.
pub fn encode_page(server: u64, page: u64, blocks: &[u64]) -> Vec<u8> {
    encode(b"FNP1", &[&[server, page][..], blocks].concat())
}

/// The blocks of a page.
pub fn decode_page(server: u64, page: u64, bytes: &[u8]) -> Option<Vec<u64>> {
    let mut words = decode(b"FNP1", bytes)?;
    (words.len() >= 2 && words[..2] == [server, page]).then(|| words.split_off(2))
}

/// The bytes of an image page. `image` is what [`crate::fingerprints::Fingerprints`] has written.
pub fn encode_image(server: u64, first: u64, buckets: u64, image: &[u8]) -> Vec<u8> {
    let words = image
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    encode(
        b"FNI1",
        &[server, first, buckets]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>(),
    )
}

/// First bucket and image of an image page, if it is one of a table of so many buckets.
pub fn decode_image(server: u64, buckets: u64, bytes: &[u8]) -> Option<(u64, &[u8])> {
    match decode(b"FNI1", bytes)?[..] {
        [of, first, all, ..] if of == server && all == buckets && first < buckets => {
            Some((first, &bytes[4 + 24..bytes.len() - 8]))
        }
        _ => None,
    }
}

fn encode(magic: &[u8; 4], words: &[u64]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    words
        .iter()
        .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
    bytes
}

fn decode(magic: &[u8; 4], bytes: &[u8]) -> Option<Vec<u64>> {
    let (summed, checksum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    let words = summed.strip_prefix(magic)?;
    if xxh3_64(summed).to_le_bytes() != checksum || words.len() % 8 != 0 {
        return None;
    }
    let word = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap_or_default());
    Some(words.chunks_exact(8).map(word).collect())
}

#[cfg(test)]
mod tests;
