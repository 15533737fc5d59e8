//! The table in which a schema keeps the foreign keys that a conversion has dropped. The table is
//! created before the first foreign key is dropped, and dropped when all of them are in force
//! again.

use super::catalog::{SAVED_TABLE, fields};
use super::client::Client;
use super::foreign_key::{ForeignKey, TableName};
use crate::server::{quoted_name, quoted_text};
use firn::base::Result;
use std::collections::BTreeSet;

fn saved_table(schema: &str) -> String {
    format!("{}.{}", quoted_name(schema), quoted_name(SAVED_TABLE))
}

fn exists(client: &mut Client<'_>, schema: &str) -> Result<bool> {
    let rows = client.ask(&format!(
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        quoted_text(schema),
        quoted_text(SAVED_TABLE)
    ))?;
    Ok(!rows.is_empty())
}

/// The foreign keys that earlier conversions of these schemas have saved.
///
/// # Errors
/// Those of the server.
pub fn load(client: &mut Client<'_>, schemas: &[String]) -> Result<Vec<ForeignKey>> {
    let mut keys: Vec<ForeignKey> = Vec::new();
    for schema in schemas {
        if !exists(client, schema)? {
            continue;
        }
        let rows = client.ask(&format!(
            "SELECT table_name, constraint_name, column_name, parent_schema, parent_table, parent_column, on_update, on_delete \
             FROM {} ORDER BY table_name, constraint_name, position",
            saved_table(schema)
        ))?;
        for row in rows {
            let [
                table,
                name,
                column,
                parent_schema,
                parent_table,
                parent_column,
                on_update,
                on_delete,
            ] = fields(row)?;
            let row = ForeignKey {
                name,
                child: TableName {
                    schema: schema.clone(),
                    table,
                },
                parent: TableName {
                    schema: parent_schema,
                    table: parent_table,
                },
                columns: vec![(column, parent_column)],
                on_update,
                on_delete,
            };
            ForeignKey::add_row(&mut keys, row);
        }
    }
    Ok(keys)
}

/// Writes the definitions of foreign keys to the table of saved foreign keys. Each definition goes
/// to that table in the schema of the child table. The table is created if the schema has none.
///
/// # Errors
/// Those of the server. After an error the caller must drop none of the keys.
pub fn save(client: &mut Client<'_>, keys: &[&ForeignKey]) -> Result<()> {
    let schemas: BTreeSet<&str> = keys.iter().map(|key| key.child.schema.as_str()).collect();
    for schema in schemas {
        client.ask(&format!(
            "CREATE TABLE IF NOT EXISTS {} (table_name VARCHAR(64) NOT NULL, constraint_name VARCHAR(64) NOT NULL, \
             position INT UNSIGNED NOT NULL, column_name VARCHAR(64) NOT NULL, parent_schema VARCHAR(64) NOT NULL, \
             parent_table VARCHAR(64) NOT NULL, parent_column VARCHAR(64) NOT NULL, on_update VARCHAR(16) NOT NULL, \
             on_delete VARCHAR(16) NOT NULL, PRIMARY KEY (table_name, constraint_name, position)) \
             ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin \
             COMMENT='Foreign keys that firn convert has dropped and adds again. Run it again to finish.'",
            saved_table(schema)
        ))?;
    }
    for key in keys {
        let rows = key
            .columns
            .iter()
            .enumerate()
            .map(|(position, (column, parent_column))| {
                let fields = [
                    &key.child.table,
                    &key.name,
                    &position.to_string(),
                    column,
                    &key.parent.schema,
                    &key.parent.table,
                    parent_column,
                    &key.on_update,
                    &key.on_delete,
                ];
                let fields: Vec<String> = fields.iter().map(|field| quoted_text(field)).collect();
                format!("({})", fields.join(", "))
            });
        let rows: Vec<String> = rows.collect();
        client.ask(&format!(
            "REPLACE INTO {} VALUES {}",
            saved_table(&key.child.schema),
            rows.join(", ")
        ))?;
    }
    Ok(())
}

/// Removes the saved copy of a foreign key that is in force again.
///
/// # Errors
/// Those of the server.
pub fn forget(client: &mut Client<'_>, key: &ForeignKey) -> Result<()> {
    client.ask(&format!(
        "DELETE FROM {} WHERE table_name = {} AND constraint_name = {}",
        saved_table(&key.child.schema),
        quoted_text(&key.child.table),
        quoted_text(&key.name)
    ))?;
    Ok(())
}

/// Drops the table of saved foreign keys in each schema in which it is empty.
///
/// # Errors
/// Those of the server.
pub fn drop_empty(client: &mut Client<'_>, schemas: &BTreeSet<String>) -> Result<()> {
    for schema in schemas {
        if exists(client, schema)?
            && client
                .ask(&format!("SELECT 1 FROM {} LIMIT 1", saved_table(schema)))?
                .is_empty()
        {
            client.ask(&format!("DROP TABLE {}", saved_table(schema)))?;
        }
    }
    Ok(())
}
