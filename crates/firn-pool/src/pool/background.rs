//! The background work of a pool.
//!
//! A round does a bounded amount of each kind of work, and looks between two steps whether the pool
//! stops: no node, and no lie of one, holds the other nodes up for long.

use super::Shared;
use crate::meta::Commands;
use crate::name::Name;
use crate::news::{self, IMAGE_BUCKETS, NEWS_LEN_MAX, Unread};
use crate::node::Node;
use crate::value::{open, seal, value_len};

/// Pause between two questions for a node's figures, microseconds.
const FIGURES_US: u64 = 5_000_000;
/// Readings of the figures that must agree before the table changes its size.
const AGREEING_READINGS: u32 = 3;
/// More memory of one node than this is a lie: 16 TiB.
const LIMIT_BYTES_MAX: u64 = 1 << 44;
/// Pause between two readings of news.
const NEWS_US: u64 = 1_000_000;
/// Pause between two images of the table.
const IMAGE_US: u64 = 600_000_000;
/// Pages of news that one batch reads.
const PAGES_A_BATCH: usize = 8;
/// Batches of news that one round reads, and image pages that it writes.
const BATCHES_A_ROUND: usize = 4;
/// Pages of news that wait to be read, at most.
const UNREAD_MAX: usize = 10_000;
/// Pause while a node owes an answer.
const OWED_US: u64 = 250;
/// Pause while there is more to do.
const BUSY_US: u64 = 1000;
/// Longest pause: breakers are looked after within it.
const PAUSE_US_MAX: u64 = 50_000;
/// Pause while the pool is off: it is woken when it is switched on.
const OFF_US: u64 = 3_600_000_000;

/// When what is due.
#[derive(Default)]
pub(super) struct Schedule {
    figures_at_us: u64,
    news_at_us: u64,
    image_at_us: Option<u64>,
    /// Size that the table should have, and how many readings have agreed on it.
    wish: (u64, u32),
    /// The first figures were read, so the table has its size.
    is_sized: bool,
    unread: Unread,
}

impl Schedule {
    /// The nodes have changed: look at them now.
    pub(super) fn hurry(&mut self) {
        self.figures_at_us = 0;
        self.is_sized = false;
    }
}

impl Shared {
    /// One round. Returns after how many microseconds the next one is due.
    pub(super) fn tick(&self) -> u64 {
        if !self.is_enabled() {
            self.drop_puts();
            self.close();
            return OFF_US;
        }
        let ring = self.ring.load_full();
        let mut is_owed = false;
        for node in ring.nodes() {
            is_owed |= node.keep_up(&*self.link, &*self.clock);
            if self.wake.stops() {
                return 0;
            }
        }
        let busy = self.queue.len().0 > 0;
        self.send_puts();
        if self.wake.stops() {
            return 0;
        }
        self.read_figures();
        self.exchange_news();
        let reads = !self.schedule.lock().unread.is_empty();
        match (is_owed, busy || reads) {
            (true, _) => OWED_US,
            (false, true) => BUSY_US,
            (false, false) => PAUSE_US_MAX,
        }
    }

    fn read_figures(&self) {
        let now_us = self.clock.now_us();
        let ring = self.ring.load();
        // A node without figures is asked as soon as it answers.
        let unread = |node: &Node| node.limit_bytes() == 0 && node.breaker.is_closed();
        let due = self.schedule.lock().figures_at_us <= now_us;
        let mut read = false;
        for node in ring.nodes().iter().filter(|node| due || unread(node)) {
            node.read_figures(&*self.link, &*self.clock);
            read |= node.limit_bytes() > 0;
            if self.wake.stops() {
                return;
            }
        }
        if due {
            self.schedule.lock().figures_at_us = now_us + FIGURES_US;
        }
        if read {
            let limits = ring
                .nodes()
                .iter()
                .map(|node| node.limit_bytes().min(LIMIT_BYTES_MAX));
            self.resize(self.known.rounded(limits.sum::<u64>() / self.block_bytes));
        }
    }

    /// Gives the table room for `blocks` once some readings have agreed, so that figures which go
    /// to
    /// and fro change nothing.
    fn resize(&self, blocks: u64) {
        let mut schedule = self.schedule.lock();
        let agreeing = if schedule.wish.0 == blocks {
            schedule.wish.1 + 1
        } else {
            1
        };
        schedule.wish = (blocks, agreeing);
        if schedule.is_sized && agreeing < AGREEING_READINGS {
            return;
        }
        schedule.is_sized = true;
        if self.known.resize(blocks) {
            schedule.unread = Unread::default();
            self.news.lock().forget_read();
        }
    }

    fn exchange_news(&self) {
        let now_us = self.clock.now_us();
        let due = {
            let mut schedule = self.schedule.lock();
            let due = schedule.is_sized && now_us >= schedule.news_at_us;
            if due {
                schedule.news_at_us = now_us + NEWS_US;
            }
            due
        };
        if due {
            let names: Vec<Name> = (0..news::SLOTS).map(news::head_name).collect();
            // A node that is down has some of the heads; the others are enough to go on.
            let heads = self.get_news(&names).into_iter();
            let heads: Vec<_> = heads.map(|bytes| news::decode_head(&bytes?)).collect();
            let unread = self.news.lock().on_heads(&heads);
            self.schedule.lock().unread.extend(unread, UNREAD_MAX);
        }
        self.read_unread();
        if due {
            let mut values = self.image_pages(now_us);
            values.extend(self.news.lock().take_unwritten());
            for (name, value) in values {
                self.put_news(&name, &value);
                if self.wake.stops() {
                    return;
                }
            }
        }
    }

    fn read_unread(&self) {
        for _ in 0..BATCHES_A_ROUND {
            let (pages, images) = self.schedule.lock().unread.take(PAGES_A_BATCH);
            if pages.is_empty() && images.is_empty() || self.wake.stops() {
                return;
            }
            let names: Vec<_> = pages
                .iter()
                .map(|(s, page)| news::page_name(*s, *page))
                .collect();
            for ((server, page), bytes) in pages.iter().zip(self.get_news(&names)) {
                let blocks = bytes.and_then(|bytes| news::decode_page(*server, *page, &bytes));
                blocks
                    .into_iter()
                    .flatten()
                    .for_each(|short| self.known.insert(short));
            }
            let names: Vec<_> = images
                .iter()
                .map(|(s, page)| news::image_name(*s, *page))
                .collect();
            let tables = self.known.tables();
            for ((server, _), bytes) in images.iter().zip(self.get_news(&names)) {
                let Some(bytes) = bytes else { continue };
                let image = news::decode_image(*server, tables[0].buckets(), &bytes);
                if let Some((first, image)) = image {
                    tables[0].add_image(first, image);
                }
            }
        }
    }

    /// The pages of the image of the own table that are due now: of both generations, if they have
    /// one size.
    fn image_pages(&self, now_us: u64) -> Vec<(Name, Vec<u8>)> {
        let mut tables = self.known.tables();
        let buckets = tables[0].buckets();
        tables.retain(|table| table.buckets() == buckets);
        let due = {
            let mut schedule = self.schedule.lock();
            // The first image after a start is written once there is something in it.
            let at_us = *schedule.image_at_us.get_or_insert(now_us + 10 * NEWS_US);
            if at_us <= now_us {
                schedule.image_at_us = Some(now_us + IMAGE_US);
            }
            at_us <= now_us
        };
        let mut news = self.news.lock();
        let server = news.server();
        let of_table = buckets.div_ceil(IMAGE_BUCKETS);
        let page = |page: u64| {
            let mut image = Vec::new();
            let first = page % of_table * IMAGE_BUCKETS;
            let table = tables.get((page / of_table) as usize)?;
            table.write_image(first, IMAGE_BUCKETS, &mut image);
            let name = news::image_name(server, page);
            Some((name, news::encode_image(server, first, buckets, &image)))
        };
        let pages = of_table * tables.len() as u64;
        news.take_image(pages, due, BATCHES_A_ROUND as u64)
            .filter_map(page)
            .collect()
    }

    fn get_news(&self, names: &[Name]) -> Vec<Option<Vec<u8>>> {
        let ring = self.ring.load();
        let value_max = value_len(NEWS_LEN_MAX, self.cipher.as_ref());
        let names: Vec<Name> = names.iter().map(|name| self.masked(name)).collect();
        let mut found = vec![None; names.len()];
        for (index, node) in ring.nodes().iter().enumerate() {
            let here = |at: &usize| {
                ring.place(&names[*at])
                    .is_some_and(|place| place.0 == index)
            };
            let here: Vec<usize> = (0..names.len()).filter(here).collect();
            if here.is_empty() || self.wake.stops() {
                continue;
            }
            let wanted: Vec<Name> = here.iter().map(|at| names[*at]).collect();
            let values = node.get_in_background(&*self.link, &*self.clock, &wanted, value_max);
            for (at, value) in here.into_iter().zip(values.into_iter().flatten()) {
                let opened = value.and_then(|v| open(&names[at], None, v, self.cipher.as_ref()));
                found[at] = opened.map(|stored| stored.to_vec());
            }
        }
        found
    }

    fn put_news(&self, name: &Name, bytes: &[u8]) {
        let ring = self.ring.load();
        let name = self.masked(name);
        let Some((first, _)) = ring.place(&name) else {
            return;
        };
        let mut commands = Commands::default();
        let value = seal(&name, bytes, self.cipher.as_ref());
        commands.put(&name, news::TTL_S, &value);
        // News that get lost cost misses.
        ring.nodes()[first].put(&*self.link, &*self.clock, commands);
    }
}
