use super::*;
use crate::args::{FIRN, INNODB};

fn name(name: &str) -> TableName {
    let (schema, table) = name.split_once('.').unwrap_or(("s", name));
    TableName {
        schema: schema.into(),
        table: table.into(),
    }
}

fn table(table: &str, engine: &str) -> TableInfo {
    TableInfo {
        name: name(table),
        engine: engine.into(),
        bytes: 1,
        blocker: None,
    }
}

fn key(child: &str, parent: &str) -> ForeignKey {
    ForeignKey {
        name: format!("{child}_{parent}"),
        child: name(child),
        parent: name(parent),
        columns: vec![("a".into(), "id".into())],
        on_update: "RESTRICT".into(),
        on_delete: "RESTRICT".into(),
    }
}

fn names(tables: &[TableInfo]) -> Vec<String> {
    tables.iter().map(|t| t.name.to_string()).collect()
}

fn titles(keys: &[ForeignKey]) -> Vec<&str> {
    keys.iter().map(|key| key.name.as_str()).collect()
}

#[test]
fn linked_tables_are_converted_with_their_keys() {
    let tables = vec![table("a", INNODB), table("b", INNODB), table("c", FIRN)];
    let plan = Plan::new(
        tables,
        vec![key("b", "a"), key("a", "b")],
        vec![],
        INNODB,
        FIRN,
    );
    assert_eq!(names(&plan.convert), ["s.a", "s.b"]);
    assert_eq!(titles(&plan.drop), ["b_a", "a_b"]);
    assert_eq!(titles(&plan.add), ["b_a", "a_b"]);
    assert_eq!(plan.stay, []);
}

#[test]
fn a_table_that_stays_keeps_all_that_it_is_linked_to() {
    let mut text = table("text", INNODB);
    text.blocker = Some("FULLTEXT".into());
    let tables = vec![
        text,
        table("a", INNODB),
        table("b", INNODB),
        table("free", INNODB),
    ];
    let keys = vec![key("a", "text"), key("b", "a")];
    let plan = Plan::new(tables, keys, vec![], INNODB, FIRN);
    assert_eq!(names(&plan.convert), ["s.free"]);
    let reasons: Vec<&str> = plan.stay.iter().map(|kept| kept.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "FULLTEXT",
            "foreign key a_text of s.a links it to s.text, which stays",
            "foreign key b_a of s.b links it to s.a, which stays"
        ]
    );
    assert_eq!(titles(&plan.drop), [""; 0]);
}

#[test]
fn a_schema_that_is_not_named_keeps_linked_tables() {
    let tables = vec![table("a", INNODB), table("b", INNODB)];
    let plan = Plan::new(tables, vec![key("a", "other.p")], vec![], INNODB, FIRN);
    assert_eq!(names(&plan.convert), ["s.b"]);
    assert_eq!(
        plan.stay[0].reason,
        "foreign key a_other.p of s.a links it to other.p, whose schema is not named"
    );
}

#[test]
fn a_conversion_goes_on_where_it_ended() {
    // State after earlier conversions: all three keys are saved, b_a is dropped and c_b is not, a,
    // x and y are converted, and x_y is in force again.
    let tables = vec![
        table("a", FIRN),
        table("b", INNODB),
        table("c", INNODB),
        table("x", FIRN),
        table("y", FIRN),
    ];
    let saved = vec![key("b", "a"), key("c", "b"), key("x", "y")];
    let in_force = vec![key("c", "b"), key("x", "y")];
    let plan = Plan::new(tables, in_force, saved, INNODB, FIRN);
    assert_eq!(names(&plan.convert), ["s.b", "s.c"]);
    assert_eq!(titles(&plan.drop), ["c_b"]);
    assert_eq!(titles(&plan.add), ["c_b", "b_a"]);
    assert_eq!(titles(&plan.forget), ["x_y"]);
}

#[test]
fn a_saved_key_between_two_engines_is_told() {
    let mut text = table("b", INNODB);
    text.blocker = Some("FULLTEXT".into());
    let tables = vec![table("a", FIRN), text];
    let plan = Plan::new(tables, vec![], vec![key("b", "a")], INNODB, FIRN);
    assert_eq!(titles(&plan.impossible), ["b_a"]);
    assert_eq!(titles(&plan.add), [""; 0]);
}

#[test]
fn tables_of_other_engines_stay() {
    let plan = Plan::new(vec![table("m", "MyISAM")], vec![], vec![], INNODB, FIRN);
    assert_eq!(plan.stay[0].reason, "only InnoDB tables are converted");
}
