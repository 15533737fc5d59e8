//! fjall with the settings that its documentation recommends. Of the codecs that the other engines
//! use, fjall has only LZ4. It has no direct I/O.

use super::{Engine, Entry, Result, Session, Settings};
use crate::data::Key;
use fjall::config::BlockSizePolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use std::time::Duration;

pub(super) struct Fjall {
    db: Database,
    keyspace: Keyspace,
    durable: bool,
}

pub(super) fn open(settings: &Settings) -> Result<Fjall> {
    let db = Database::builder(&settings.dir)
        .cache_size(settings.cache)
        .worker_threads(2)
        .open()?;
    let memtable = settings.memtable;
    let keyspace = db.keyspace("bench", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(memtable)
            .data_block_size_policy(BlockSizePolicy::all(8 << 10))
    })?;
    Ok(Fjall {
        db,
        keyspace,
        durable: settings.durable,
    })
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(FjallSession { fjall: self }))
    }

    fn pay(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        let mut quiet = 0;
        let mut before = self.db.compactions_completed();
        while quiet < 5 {
            std::thread::sleep(Duration::from_millis(50));
            let done = self.db.compactions_completed();
            let busy = self.db.active_compactions() > 0
                || self.db.outstanding_flushes() > 0
                || done != before;
            quiet = if busy { 0 } else { quiet + 1 };
            before = done;
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.pay()?;
        self.keyspace.major_compact()?;
        self.pay()
    }

    fn is_log(&self, file: &Path) -> bool {
        file.extension().is_some_and(|e| e == "jnl")
    }

    fn reads_directly(&self) -> bool {
        false
    }

    fn state(&self) -> String {
        format!(
            "{} tables, {} in L0; memtables {} MiB, cached blocks {} MiB",
            self.keyspace.table_count(),
            self.keyspace.l0_table_count(),
            self.db.write_buffer_size() >> 20,
            self.db.cache_size() >> 20
        )
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

struct FjallSession<'a> {
    fjall: &'a Fjall,
}

impl Session for FjallSession<'_> {
    fn put(&mut self, entries: &[Entry]) -> Result<()> {
        let fjall = self.fjall;
        match entries {
            [(key, value)] => {
                fjall.keyspace.insert(key, value)?;
                if fjall.durable {
                    fjall.db.persist(PersistMode::SyncData)?;
                }
            }
            _ => {
                let mode = fjall.durable.then_some(PersistMode::SyncData);
                let mut batch = fjall.db.batch().durability(mode);
                for (key, value) in entries {
                    batch.insert(&fjall.keyspace, key, value);
                }
                batch.commit()?;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &Key, out: &mut Vec<u8>) -> Result<bool> {
        let Some(value) = self.fjall.keyspace.get(key)? else {
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
        let mut count = 0;
        for entry in self.fjall.keyspace.range(*from..).take(limit) {
            let (key, value) = entry.into_inner()?;
            visit(&key, &value);
            count += 1;
        }
        Ok(count)
    }
}
