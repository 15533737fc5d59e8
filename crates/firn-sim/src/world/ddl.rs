//! DDL: creates, drops, renames and truncates of tables, and changes of counters.

use super::{StepEnd, World};
use crate::ensure;
use crate::model::Event;
use crate::tiny_options::one_of;
use firn::base::{CounterValue, ErrorKind, IndexId};
use firn::catalog::{
    ColumnSchema, IndexPart, IndexSchema, NewTable, PartSchema, TableEntry, TableLocking,
    TableSchema,
};
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use rand::Rng;
use std::sync::Arc;

/// The counter that assigns index ids.
const INDEX_IDS: u64 = 0;

/// A table of one integer column with `indexes` indexes on it.
fn schema(indexes: u32, primary: bool) -> TableSchema {
    let column = ColumnSchema {
        name: "id".into(),
        type_code: 3,
        chars: 0,
        interpretation: 0,
        column: Column {
            id: 0,
            kind: ColumnKind::Fixed { len: 4 },
            offset: 1,
            null: None,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    };
    let index = |n: u32| IndexSchema {
        name: format!("i{n}"),
        // Secondary indexes are not unique: keys are arbitrary bytes here, and in a unique
        // secondary index a lock covers only the declared columns, the start of the key.
        unique: primary && n == 0,
        parts: vec![IndexPart {
            column: 0,
            kind: PartSchema::Int { signed: true },
            desc: n % 2 == 1,
            prefix: None,
            image_len: 4,
        }],
    };
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 5,
        null_bytes: 1,
        columns: vec![column],
        indexes: (0..indexes).map(index).collect(),
        primary: (primary && indexes > 0).then_some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

impl World {
    /// The ids that a new table with `indexes` indexes will get, in the order of
    /// [`TableEntry::index_ids`].
    fn next_ids(&self, indexes: u32, primary: bool) -> Vec<IndexId> {
        let cell = self.db().catalog().counters().cell(INDEX_IDS);
        let next = cell.read().value as u32 + 1;
        match primary && indexes > 0 {
            true => (next..next + indexes).collect(),
            // The hidden clustered index gets the last id, and stands first in the list.
            false => std::iter::once(next + indexes)
                .chain(next..next + indexes)
                .collect(),
        }
    }

    fn same_ids(entry: &TableEntry, ids: &[IndexId]) -> Result<(), StepEnd> {
        let found = entry.index_ids();
        ensure!(
            found == ids,
            "table {} has the indexes {found:?}, expected {ids:?}",
            entry.name
        );
        Ok(())
    }

    /// A random table that no session or prepared transaction uses: the server's metadata locks
    /// keep DDL away from used tables.
    fn unused_table(&mut self) -> Option<(String, Vec<IndexId>)> {
        let side = self.history.side();
        let index_of = |key: &[u8]| u32::from_be_bytes(key[..4].try_into().expect("an index id"));
        let own = self.sessions.iter().flat_map(|s| s.own.iter());
        let prepared = side.prepared.values().flat_map(|writes| writes.keys());
        let mut used: Vec<IndexId> = own.map(|(key, _)| index_of(key)).collect();
        used.extend(prepared.map(|key| index_of(key)));
        used.extend(self.locks.keys().map(|key| index_of(key)));
        let mut free = side.tables.clone();
        free.retain(|_, ids| !ids.iter().any(|id| used.contains(id)));
        let count = free.len().max(1);
        free.into_iter().nth(self.rng.random_range(0..count))
    }

    pub(super) fn ddl(&mut self) -> Result<(), StepEnd> {
        self.stats.ddl += 1;
        let tables = self.history.side().tables.len();
        match self.rng.random_range(0..10) {
            _ if tables == 0 => self.create(),
            0..3 if tables < 6 => self.create(),
            0..5 => self.drop_table(),
            5..7 => self.rename(),
            7..9 => self.truncate(),
            _ => self.refused(),
        }
    }

    fn create(&mut self) -> Result<(), StepEnd> {
        self.next_name += 1;
        let name = format!("db/t{}", self.next_name);
        let (indexes, primary) = (self.rng.random_range(0..3), self.rng.random());
        let ids = self.next_ids(indexes, primary);
        let definition = NewTable {
            schema: schema(indexes, primary),
            frm: name.as_bytes(),
            version: b"v1",
            created_micros: 1,
        };
        let catalog = Arc::clone(self.db().catalog());
        let result = catalog.create(&name, definition);
        let entry = self.record_if(result, Event::Create(name, ids.clone()))?;
        self.ddl_is_durable();
        Self::same_ids(&entry, &ids)
    }

    fn drop_table(&mut self) -> Result<(), StepEnd> {
        let Some((name, _)) = self.unused_table() else {
            return Ok(());
        };
        let result = self.db().catalog().drop_table(&name);
        self.record_if(result, Event::Drop(name))?;
        self.ddl_is_durable();
        Ok(())
    }

    fn rename(&mut self) -> Result<(), StepEnd> {
        let Some((from, _)) = self.unused_table() else {
            return Ok(());
        };
        self.next_name += 1;
        let to = format!("db/r{}", self.next_name);
        let result = self.db().catalog().rename(&from, &to);
        self.record_if(result, Event::Rename(from, to))?;
        self.ddl_is_durable();
        Ok(())
    }

    fn truncate(&mut self) -> Result<(), StepEnd> {
        let Some((name, _)) = self.unused_table() else {
            return Ok(());
        };
        let entry = self.db().catalog().get(&name)?;
        let primary = entry.schema.primary.is_some();
        let ids = self.next_ids(entry.schema.indexes.len() as u32, primary);
        let result = self.db().catalog().truncate(&name);
        let entry = self.record_if(result, Event::Truncate(name, ids.clone()))?;
        self.ddl_is_durable();
        Self::same_ids(&entry, &ids)
    }

    /// Tries changes that the catalog must refuse, and checks the kinds of the errors.
    fn refused(&mut self) -> Result<(), StepEnd> {
        let catalog = Arc::clone(self.db().catalog());
        let Some(name) = self.history.side().tables.keys().next().cloned() else {
            return Ok(());
        };
        let definition = NewTable {
            schema: schema(1, true),
            frm: b"",
            version: b"",
            created_micros: 1,
        };
        let again = catalog.create(&name, definition).err();
        let missing = catalog.drop_table("db/none").err();
        let kinds = [again, missing].map(|error| error.map(|e| e.kind().clone()));
        let expected = [ErrorKind::AlreadyExists, ErrorKind::NotFound].map(Some);
        ensure!(kinds == expected, "refused changes gave {kinds:?}");
        Ok(())
    }

    /// Tells the model that all events so far are durable: DDL and changes of counters make the log
    /// durable before they return, whatever the commit durability is.
    fn ddl_is_durable(&mut self) {
        let now = self.history.now();
        self.history.acknowledge(now);
    }

    pub(super) fn persist_counter(&mut self) -> Result<(), StepEnd> {
        let counter = 2000 + self.rng.random_range(0..2);
        let counters = Arc::clone(self.db().catalog().counters());
        let mut value = counters.cell(counter).read();
        value.value += self.rng.random_range(1..9);
        self.note_counter(counter, value);
        // Do not record a failed call: the model requires only that a counter is at least as large
        // as recorded. After the failure the raised value stays in memory, so the counter does not
        // show whether the log has that value.
        self.db().catalog().persist_counter(counter, value.value)?;
        self.record(Event::Counter(counter, value));
        self.ddl_is_durable();
        Ok(())
    }

    /// Sets a counter, mostly to a smaller value. Transactions that raised it before may still
    /// commit afterwards.
    pub(super) fn set_counter(&mut self) -> Result<(), StepEnd> {
        let counter = one_of(&mut self.rng, &[1000, 1001, 1002, 2000, 2001]);
        let before = self.db().catalog().counters().cell(counter).read();
        let value = CounterValue {
            generation: before.generation + 1,
            value: before.value.saturating_sub(self.rng.random_range(0..9)),
        };
        self.note_counter(counter, value);
        // If `set_counter` below fails, the core sets the counter back to the old value, and counts
        // its generation up once more.
        self.note_counter(
            counter,
            CounterValue {
                generation: before.generation + 2,
                ..before
            },
        );
        self.db().catalog().set_counter(counter, value.value)?;
        self.record(Event::Counter(counter, value));
        self.ddl_is_durable();
        Ok(())
    }

    /// Notes that a counter reaches `value`, at least in memory.
    pub(super) fn note_counter(&mut self, counter: u64, value: CounterValue) {
        let most = &mut self.counters_most;
        let most = most.entry((counter, value.generation)).or_default();
        *most = value.value.max(*most);
    }
}
