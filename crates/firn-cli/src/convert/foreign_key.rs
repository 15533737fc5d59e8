//! Foreign keys as the server describes them, and the statements about them.

use crate::server::quoted_name;
use std::fmt::{self, Display};

/// A table of a schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub table: String,
}

impl TableName {
    /// The name as statements need it.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted_name(&self.schema), quoted_name(&self.table))
    }
}

impl Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// A foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name of the constraint, unique in the child's schema.
    pub name: String,
    pub child: TableName,
    pub parent: TableName,
    /// Columns of child and parent in the order of the constraint.
    pub columns: Vec<(String, String)>,
    /// Actions as `information_schema` names them.
    pub on_update: String,
    pub on_delete: String,
}

impl ForeignKey {
    /// Adds one row of a query to `keys`; `row` is a foreign key with a single column. If the last
    /// key is the same foreign key, it gets that column; otherwise `row` becomes the last key. The
    /// query must order its rows by child, name and position.
    pub fn add_row(keys: &mut Vec<Self>, row: Self) {
        match keys.last_mut() {
            Some(last) if last.child == row.child && last.name == row.name => {
                last.columns.extend(row.columns);
            }
            _ => keys.push(row),
        }
    }

    /// The constraint with its table, for people.
    pub fn title(&self) -> String {
        format!("{} of {}", self.name, self.child)
    }

    /// The constraint as `ALTER TABLE` adds it. `RESTRICT` is left out, as in SHOW CREATE TABLE:
    /// the server then shows the same definition as before. The name of an index cannot be given:
    /// the server would take this name for the name of the constraint.
    pub fn definition(&self) -> String {
        let list = |names: Vec<&String>| {
            let quoted: Vec<String> = names.into_iter().map(|name| quoted_name(name)).collect();
            quoted.join(", ")
        };
        let action = |event: &str, action: &str| match action {
            "RESTRICT" => String::new(),
            _ => format!(" ON {event} {action}"),
        };
        format!(
            "CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}){}{}",
            quoted_name(&self.name),
            list(self.columns.iter().map(|(child, _)| child).collect()),
            self.parent.quoted(),
            list(self.columns.iter().map(|(_, parent)| parent).collect()),
            action("DELETE", &self.on_delete),
            action("UPDATE", &self.on_update),
        )
    }

    /// A query for one row of the child that has no parent. Its tables are called `c` and `p`.
    pub fn orphan_query(&self) -> String {
        let each = |join: &str, text: &dyn Fn(&str, &str) -> String| {
            let parts = self.columns.iter();
            let parts: Vec<String> = parts
                .map(|(child, parent)| text(&quoted_name(child), &quoted_name(parent)))
                .collect();
            parts.join(join)
        };
        format!(
            "SELECT CONCAT_WS(', ', {}) FROM {} AS c WHERE {} AND NOT EXISTS (SELECT 1 FROM {} AS p WHERE {}) LIMIT 1",
            each(", ", &|child, _| format!("c.{child}")),
            self.child.quoted(),
            each(" AND ", &|child, _| format!("c.{child} IS NOT NULL")),
            self.parent.quoted(),
            each(" AND ", &|child, parent| format!("p.{parent} = c.{child}")),
        )
    }

    /// Locks both tables, under their own names and under their aliases in [`Self::orphan_query`].
    pub fn lock_statement(&self) -> String {
        let (child, parent) = (self.child.quoted(), self.parent.quoted());
        let mut locks = format!("LOCK TABLES {child} WRITE, {child} AS c READ, {parent} AS p READ");
        if child != parent {
            locks += &format!(", {parent} WRITE");
        }
        locks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str) -> TableName {
        TableName {
            schema: "s".into(),
            table: table.into(),
        }
    }

    fn key() -> ForeignKey {
        let pair = |child: &str, parent: &str| (child.to_owned(), parent.to_owned());
        ForeignKey {
            name: "f`k".into(),
            child: name("c1"),
            parent: name("p1"),
            columns: vec![pair("a", "x"), pair("b", "y")],
            on_update: "RESTRICT".into(),
            on_delete: "SET NULL".into(),
        }
    }

    #[test]
    fn a_definition_has_all_columns_and_the_actions_that_differ_from_the_default() {
        assert_eq!(
            key().definition(),
            "CONSTRAINT `f``k` FOREIGN KEY (`a`, `b`) REFERENCES `s`.`p1` (`x`, `y`) ON DELETE SET NULL"
        );
    }

    #[test]
    fn a_row_without_parent_has_no_null_and_no_match() {
        assert_eq!(
            key().orphan_query(),
            "SELECT CONCAT_WS(', ', c.`a`, c.`b`) FROM `s`.`c1` AS c WHERE c.`a` IS NOT NULL AND c.`b` IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM `s`.`p1` AS p WHERE p.`x` = c.`a` AND p.`y` = c.`b`) LIMIT 1"
        );
    }

    #[test]
    fn a_table_that_refers_to_itself_is_locked_once() {
        let mut own = key();
        own.parent = own.child.clone();
        assert_eq!(
            own.lock_statement(),
            "LOCK TABLES `s`.`c1` WRITE, `s`.`c1` AS c READ, `s`.`c1` AS p READ"
        );
    }
}
