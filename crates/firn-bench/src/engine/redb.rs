//! redb: a copy-on-write B-tree with one writer at a time.

use super::{Engine, Entry, Result, Session, Settings};
use crate::data::Key;
use redb::{Builder, Database, Durability, ReadableDatabase, TableDefinition};
use std::path::Path;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

pub(super) struct Redb {
    db: Database,
    durability: Durability,
}

pub(super) fn open(settings: &Settings) -> Result<Redb> {
    let mut builder = Builder::new();
    builder.set_cache_size(settings.cache as usize);
    let db = builder.create(settings.dir.join("bench.redb"))?;
    let creation = db.begin_write()?;
    creation.open_table(TABLE)?;
    creation.commit()?;
    let durability = match settings.durable {
        true => Durability::Immediate,
        false => Durability::None,
    };
    Ok(Redb { db, durability })
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(RedbSession { redb: self }))
    }

    fn pay(&self) -> Result<()> {
        // An empty commit that waits for the device makes all earlier commits durable, too.
        Ok(self.db.begin_write()?.commit()?)
    }

    fn compact(&self) -> Result<()> {
        // redb compacts only a database that nobody else has open, and reads get no faster by it.
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

struct RedbSession<'a> {
    redb: &'a Redb,
}

impl Session for RedbSession<'_> {
    fn put(&mut self, entries: &[Entry]) -> Result<()> {
        let mut transaction = self.redb.db.begin_write()?;
        transaction.set_durability(self.redb.durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in entries {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &Key, out: &mut Vec<u8>) -> Result<bool> {
        let table = self.redb.db.begin_read()?.open_table(TABLE)?;
        let Some(value) = table.get(key.as_slice())? else {
            return Ok(false);
        };
        out.clear();
        out.extend_from_slice(value.value());
        Ok(true)
    }

    fn scan(
        &mut self,
        from: &Key,
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let table = self.redb.db.begin_read()?.open_table(TABLE)?;
        let mut count = 0;
        for entry in table.range(from.as_slice()..)?.take(limit) {
            let (key, value) = entry?;
            visit(key.value(), value.value());
            count += 1;
        }
        Ok(count)
    }
}
