//! LMDB through heed: a memory-mapped B-tree with one writer at a time. Its cache is the page
//! cache, which no setting limits.

use super::{Engine, Entry, Result, Session, Settings};
use crate::data::Key;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, WithTls};
use std::ops::Bound;
use std::path::Path;

/// Bytes of address space for the memory map.
const MAP_SIZE: usize = 128 << 30;

pub(super) struct Lmdb {
    env: Env<WithTls>,
    entries: Database<Bytes, Bytes>,
}

pub(super) fn open(settings: &Settings) -> Result<Lmdb> {
    let mut options = EnvOpenOptions::new().read_txn_with_tls();
    options.map_size(MAP_SIZE).max_readers(256);
    if !settings.durable {
        // SAFETY: a power cut may break the database, but each run makes a new one.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the directory belongs to this run, and this process opens it once.
    let env = unsafe { options.open(&settings.dir) }?;
    let mut transaction = env.write_txn()?;
    let entries = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Lmdb { env, entries })
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(LmdbSession { lmdb: self }))
    }

    fn pay(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn compact(&self) -> Result<()> {
        // LMDB compacts only while it copies the database to another file. The bench keeps the file
        // that it measures, so this call only syncs it.
        self.pay()
    }

    fn is_log(&self, _: &Path) -> bool {
        false
    }

    fn reads_directly(&self) -> bool {
        false
    }

    fn state(&self) -> String {
        String::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.pay()
    }
}

struct LmdbSession<'a> {
    lmdb: &'a Lmdb,
}

impl Session for LmdbSession<'_> {
    fn put(&mut self, entries: &[Entry]) -> Result<()> {
        let mut transaction = self.lmdb.env.write_txn()?;
        for (key, value) in entries {
            self.lmdb.entries.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &Key, out: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.lmdb.env.read_txn()?;
        let Some(value) = self.lmdb.entries.get(&transaction, key)? else {
            return Ok(false);
        };
        out.clear();
        out.extend_from_slice(value);
        Ok(true)
    }

    fn scan(
        &mut self,
        from: &Key,
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let transaction = self.lmdb.env.read_txn()?;
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(from), Bound::Unbounded);
        let range = self.lmdb.entries.range(&transaction, &from)?;
        let mut count = 0;
        for entry in range.take(limit) {
            let (key, value) = entry?;
            visit(key, value);
            count += 1;
        }
        Ok(count)
    }
}
