//! Decides which tables are converted, which stay and why, and which foreign keys are dropped and
//! added again. It asks the server nothing.

use super::catalog::TableInfo;
use super::foreign_key::{ForeignKey, TableName};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The reason why tables of other schemas stay.
const SCHEMA_NOT_NAMED: &str = "its schema is not named";

/// A table that keeps its engine, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    pub table: String,
    pub engine: String,
    pub reason: String,
}

/// The steps of a conversion.
///
/// A foreign key needs both tables in one engine. So tables that foreign keys link, also through
/// other tables, are converted together or not at all.
#[derive(Debug, Default)]
pub struct Plan {
    /// Tables to convert, in order of their names.
    pub convert: Vec<TableInfo>,
    /// Tables that keep their engine although they are not in the target engine.
    pub stay: Vec<Kept>,
    /// Foreign keys to save and drop first.
    pub drop: Vec<ForeignKey>,
    /// Foreign keys to add after all tables are converted: those that this plan drops, and those
    /// that an earlier conversion saved and dropped and that the tables do not have again.
    pub add: Vec<ForeignKey>,
    /// Foreign keys that an earlier conversion has saved and that the tables have again: only the
    /// saved copies must be removed.
    pub forget: Vec<ForeignKey>,
    /// Foreign keys that an earlier conversion has saved and dropped, and that cannot be added
    /// again, because their two tables have different engines or one of them is gone.
    pub impossible: Vec<ForeignKey>,
}

impl Plan {
    /// Plans the conversion of `tables` from one engine to another.
    pub fn new(
        tables: Vec<TableInfo>,
        in_force: Vec<ForeignKey>,
        saved: Vec<ForeignKey>,
        from: &str,
        to: &str,
    ) -> Self {
        let is = |engine: &str, other: &str| engine.eq_ignore_ascii_case(other);
        let id = |key: &ForeignKey| (key.child.clone(), key.name.clone());
        let names_in_force: BTreeSet<_> = in_force.iter().map(id).collect();
        let (forget, pending): (Vec<_>, Vec<_>) = saved
            .into_iter()
            .partition(|key| names_in_force.contains(&id(key)));

        let by_name: BTreeMap<&TableName, &TableInfo> =
            tables.iter().map(|table| (&table.name, table)).collect();
        let links = in_force.iter().chain(&pending);
        let mut reasons = own_reasons(&tables, from, to);
        for key in links.clone() {
            for end in [&key.child, &key.parent] {
                if !by_name.contains_key(end) {
                    reasons.insert(end.clone(), SCHEMA_NOT_NAMED.to_owned());
                }
            }
        }
        let in_target = |name: &TableName| {
            let table = by_name.get(name);
            table.is_some_and(|table| is(&table.engine, to))
        };
        spread(&mut reasons, links, &in_target);

        let converts =
            |table: &TableInfo| is(&table.engine, from) && !reasons.contains_key(&table.name);
        let convert: Vec<TableInfo> = tables.iter().filter(|t| converts(t)).cloned().collect();
        let moved: BTreeSet<&TableName> = convert.iter().map(|table| &table.name).collect();
        let engine_after = |name: &TableName| {
            let engine = by_name
                .get(name)
                .map(|table| table.engine.to_ascii_lowercase());
            match moved.contains(name) {
                true => Some(to.to_ascii_lowercase()),
                false => engine,
            }
        };
        let drop: Vec<ForeignKey> = in_force
            .into_iter()
            .filter(|key| moved.contains(&key.child) || moved.contains(&key.parent))
            .collect();
        let same_engine = |key: &ForeignKey| {
            let engine = engine_after(&key.child);
            engine.is_some() && engine == engine_after(&key.parent)
        };
        let (add, impossible): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|key| same_engine(key));
        let forget = forget.into_iter();
        let dropped: BTreeSet<_> = drop.iter().map(id).collect();
        Self {
            stay: kept(&tables, &reasons, to),
            forget: forget.filter(|key| !dropped.contains(&id(key))).collect(),
            add: drop.iter().cloned().chain(add).collect(),
            convert,
            drop,
            impossible,
        }
    }
}

/// The tables that stay for reasons of their own.
fn own_reasons(tables: &[TableInfo], from: &str, to: &str) -> BTreeMap<TableName, String> {
    let mut reasons = BTreeMap::new();
    for table in tables {
        if table.engine.eq_ignore_ascii_case(to) {
            continue;
        }
        let reason = match &table.blocker {
            _ if !table.engine.eq_ignore_ascii_case(from) => {
                Some(format!("only {from} tables are converted"))
            }
            blocker => blocker.clone(),
        };
        if let Some(reason) = reason {
            reasons.insert(table.name.clone(), reason);
        }
    }
    reasons
}

/// Adds to `reasons` each table that a chain of foreign keys links to a table which is already in
/// `reasons`. Chains end at tables that are in the target engine already.
fn spread<'a>(
    reasons: &mut BTreeMap<TableName, String>,
    keys: impl Iterator<Item = &'a ForeignKey>,
    in_target: &dyn Fn(&TableName) -> bool,
) {
    let mut linked: BTreeMap<&TableName, Vec<(&TableName, &ForeignKey)>> = BTreeMap::new();
    for key in keys {
        linked
            .entry(&key.child)
            .or_default()
            .push((&key.parent, key));
        linked
            .entry(&key.parent)
            .or_default()
            .push((&key.child, key));
    }
    let mut queue: VecDeque<TableName> = reasons.keys().cloned().collect();
    while let Some(name) = queue.pop_front() {
        for (other, key) in linked.get(&name).into_iter().flatten() {
            if reasons.contains_key(*other) || in_target(other) {
                continue;
            }
            let why = match reasons[&name] == SCHEMA_NOT_NAMED {
                true => "whose schema is not named",
                false => "which stays",
            };
            let reason = format!("foreign key {} links it to {name}, {why}", key.title());
            reasons.insert((*other).clone(), reason);
            queue.push_back((*other).clone());
        }
    }
}

fn kept(tables: &[TableInfo], reasons: &BTreeMap<TableName, String>, to: &str) -> Vec<Kept> {
    let stay = tables.iter().filter_map(|table| {
        let reason = reasons.get(&table.name)?;
        (!table.engine.eq_ignore_ascii_case(to)).then(|| Kept {
            table: table.name.to_string(),
            engine: table.engine.clone(),
            reason: reason.clone(),
        })
    });
    stay.collect()
}

#[cfg(test)]
mod tests;
