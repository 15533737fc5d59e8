//! RocksDB, tuned: LZ4 above and ZSTD in the bottom level, 10-bit bloom filters for files and
//! memtables, hash index in blocks, direct I/O, filters and indexes in the cache, one flush and one
//! compaction at a time.

use super::{Engine, Entry, Result, Session, Settings};
use crate::data::Key;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    DataBlockIndexType, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::time::Duration;

pub(super) struct Rocks {
    db: DB,
    durable: bool,
}

pub(super) fn open(settings: &Settings) -> Result<Rocks> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_hyper_clock_cache(settings.cache as usize, 0));
    table.set_block_size(8 << 10);
    table.set_bloom_filter(10.0, false);
    table.set_optimize_filters_for_memory(true);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_pin_top_level_index_and_filter(true);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_format_version(6);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_compaction_readahead_size(2 << 20);
    options.set_write_buffer_size(settings.memtable as usize);
    options.set_max_write_buffer_number(4);
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_enable_pipelined_write(true);
    options.set_max_background_jobs(2);
    options.set_max_open_files(-1);
    options.set_target_file_size_base(32 << 20);
    options.set_max_bytes_for_level_base(128 << 20);
    options.set_stats_dump_period_sec(0);
    let db = DB::open(&options, &settings.dir)?;
    Ok(Rocks {
        db,
        durable: settings.durable,
    })
}

impl Rocks {
    fn number(&self, property: &str) -> u64 {
        let value = self.db.property_int_value(property);
        value.ok().flatten().unwrap_or(0)
    }
}

impl Engine for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut write = WriteOptions::default();
        write.set_sync(self.durable);
        Ok(Box::new(RocksSession {
            db: &self.db,
            read: ReadOptions::default(),
            write,
        }))
    }

    fn pay(&self) -> Result<()> {
        const WORK: [&str; 4] = [
            "rocksdb.mem-table-flush-pending",
            "rocksdb.num-running-flushes",
            "rocksdb.compaction-pending",
            "rocksdb.num-running-compactions",
        ];
        self.db.flush()?;
        let mut quiet = 0;
        while quiet < 5 {
            std::thread::sleep(Duration::from_millis(50));
            let busy = WORK.iter().any(|name| self.number(name) > 0);
            quiet = if busy { 0 } else { quiet + 1 };
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.db
            .compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        self.pay()
    }

    fn is_log(&self, file: &Path) -> bool {
        file.extension().is_some_and(|e| e == "log") || file.file_name().is_some_and(|n| n == "LOG")
    }

    fn reads_directly(&self) -> bool {
        true
    }

    fn state(&self) -> String {
        let files: Vec<String> = (0..7)
            .filter_map(|level| {
                let name = format!("rocksdb.num-files-at-level{level}");
                let count = self.db.property_value(name.as_str()).ok()??;
                (count != "0").then(|| format!("L{level} {count} files"))
            })
            .collect();
        format!(
            "{}; memtables {} MiB, cached blocks {} MiB",
            files.join(", "),
            self.number("rocksdb.cur-size-all-mem-tables") >> 20,
            self.number("rocksdb.block-cache-usage") >> 20
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct RocksSession<'a> {
    db: &'a DB,
    read: ReadOptions,
    write: WriteOptions,
}

impl Session for RocksSession<'_> {
    fn put(&mut self, entries: &[Entry]) -> Result<()> {
        match entries {
            [(key, value)] => self.db.put_opt(key, value, &self.write)?,
            _ => {
                let mut batch = WriteBatch::default();
                for (key, value) in entries {
                    batch.put(key, value);
                }
                self.db.write_opt(batch, &self.write)?;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &Key, out: &mut Vec<u8>) -> Result<bool> {
        let Some(value) = self.db.get_pinned_opt(key, &self.read)? else {
            return Ok(false);
        };
        out.clear();
        out.extend_from_slice(&value);
        Ok(true)
    }

    fn scan(
        &mut self,
        from: &Key,
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut entries = self.db.raw_iterator();
        entries.seek(from);
        let mut count = 0;
        while let Some((key, value)) = entries.item() {
            visit(key, value);
            count += 1;
            if count == limit {
                break;
            }
            entries.next();
        }
        entries.status()?;
        Ok(count)
    }
}
