//! Tables and foreign keys of the server, from `information_schema`.

use super::client::Client;
use super::foreign_key::{ForeignKey, TableName};
use crate::server::quoted_text;
use firn::base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// The reason for which a table with system versioning stays: the server refuses to change its
/// engine, in both directions.
const VERSIONED: &str = "system versioning, with which the server does not change the engine";

/// The table in which a conversion saves foreign keys ([`super::saved_foreign_keys`]). It is never
/// converted.
pub const SAVED_TABLE: &str = "_firn_convert_constraints";

/// A table that may be converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    pub name: TableName,
    pub engine: String,
    /// Data and indexes, as the engine estimates them.
    pub bytes: u64,
    /// The reason why FIRN cannot hold the table.
    pub blocker: Option<String>,
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quoted_text(name)).collect();
    quoted.join(", ")
}

/// The schemas as the server spells them.
///
/// # Errors
/// `NotFound` for a schema that does not exist, `InvalidArgument` for one of the server's own.
pub fn schemas(client: &mut Client<'_>, names: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in names {
        if ["mysql", "information_schema", "performance_schema", "sys"]
            .contains(&name.to_ascii_lowercase().as_str())
        {
            return Err(Error::invalid(format_args!(
                "{name} is a schema of the server, which stays as it is"
            )));
        }
        let query = format!(
            "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {}",
            quoted_text(name)
        );
        match client.ask(&query)?.pop().and_then(|mut row| row.pop()) {
            Some(schema) => found.push(schema),
            None => {
                let message = format!("no schema {name}");
                return Err(Error::new(ErrorKind::NotFound, message));
            }
        }
    }
    Ok(found)
}

/// All tables and sequences of the schemas, in order of their names.
///
/// # Errors
/// Those of the server.
pub fn tables(client: &mut Client<'_>, schemas: &[String]) -> Result<Vec<TableInfo>> {
    let mut blockers = blockers(client, schemas)?;
    let rows = client.ask(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(ENGINE, ''), COALESCE(DATA_LENGTH + INDEX_LENGTH, 0), \
         COALESCE(CREATE_OPTIONS, ''), TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ({}) \
         AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') ORDER BY TABLE_SCHEMA, TABLE_NAME",
        list(schemas)
    ))?;
    let mut tables = Vec::new();
    for row in rows {
        let [schema, table, engine, bytes, options, kind] = fields(row)?;
        if table == SAVED_TABLE {
            continue;
        }
        let name = TableName { schema, table };
        let options: String = options.chars().filter(|c| !"`'\"".contains(*c)).collect();
        let encrypted = options.to_ascii_uppercase().contains("ENCRYPTED=YES");
        let encrypted = encrypted.then(|| "ENCRYPTED=YES, which FIRN does not have yet".to_owned());
        tables.push(TableInfo {
            blocker: match kind == "SYSTEM VERSIONED" {
                true => Some(VERSIONED.to_owned()),
                false => blockers.remove(&name).or(encrypted),
            },
            name,
            engine,
            bytes: bytes.parse().unwrap_or(0),
        });
    }
    Ok(tables)
}

fn blockers(client: &mut Client<'_>, schemas: &[String]) -> Result<BTreeMap<TableName, String>> {
    let schemas = list(schemas);
    let queries = [
        format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, CONCAT(INDEX_TYPE, ' index ', INDEX_NAME, ', which FIRN does not have') \
             FROM information_schema.STATISTICS WHERE TABLE_SCHEMA IN ({schemas}) AND INDEX_TYPE IN ('FULLTEXT', 'SPATIAL')"
        ),
        format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, 'system versioning by transaction, which FIRN does not have' \
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA IN ({schemas}) AND GENERATION_EXPRESSION = 'ROW START' \
             AND DATA_TYPE = 'bigint'"
        ),
    ];
    let mut blockers = BTreeMap::new();
    for query in queries {
        for row in client.ask(&query)? {
            let [schema, table, reason] = fields(row)?;
            blockers
                .entry(TableName { schema, table })
                .or_insert(reason);
        }
    }
    Ok(blockers)
}

/// All foreign keys whose child table or parent table is in one of the schemas.
///
/// # Errors
/// Those of the server.
pub fn foreign_keys(client: &mut Client<'_>, schemas: &[String]) -> Result<Vec<ForeignKey>> {
    let columns = client.ask(&format!(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, \
         REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE \
         WHERE REFERENCED_TABLE_NAME IS NOT NULL AND (CONSTRAINT_SCHEMA IN ({0}) OR REFERENCED_TABLE_SCHEMA IN ({0})) \
         ORDER BY CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION",
        list(schemas)
    ))?;
    let rules = client.ask(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE \
         FROM information_schema.REFERENTIAL_CONSTRAINTS",
    )?;
    let mut actions = BTreeMap::new();
    for row in rules {
        let [schema, table, name, on_update, on_delete] = fields(row)?;
        actions.insert((TableName { schema, table }, name), (on_update, on_delete));
    }
    let mut keys: Vec<ForeignKey> = Vec::new();
    for row in columns {
        let [
            schema,
            table,
            name,
            column,
            parent_schema,
            parent_table,
            parent_column,
        ] = fields(row)?;
        let child = TableName { schema, table };
        let (on_update, on_delete) = actions
            .get(&(child.clone(), name.clone()))
            .cloned()
            .ok_or_else(|| Error::unsupported(format_args!("foreign key {name} has no rules")))?;
        let row = ForeignKey {
            name,
            child,
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
    Ok(keys)
}

/// The fields of a row.
///
/// # Errors
/// `Unsupported` if the row has another number of fields than `N`.
pub fn fields<const N: usize>(row: Vec<String>) -> Result<[String; N]> {
    row.try_into().map_err(|row: Vec<String>| {
        let found = row.len();
        Error::unsupported(format_args!(
            "the server answered {found} fields instead of {N}"
        ))
    })
}
