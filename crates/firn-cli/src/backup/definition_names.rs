//! Names of databases and of the files with the definitions of their tables.

/// Whether a name is one component of a path and cannot lead to another directory.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Whether a directory in the server's data directory can be a database whose definitions are kept.
pub fn is_database(name: &str) -> bool {
    let system = ["mysql", "performance_schema", "sys"].contains(&name);
    is_plain(name) && !system && !name.starts_with('#')
}

/// Whether a file of a database holds a definition. Temporary files of unfinished DDL do not count.
pub fn is_definition(name: &str) -> bool {
    let ending = name.rsplit_once('.').unwrap_or_default().1;
    let wanted = ["frm", "par", "TRG", "TRN"].contains(&ending) || name == "db.opt";
    is_plain(name) && wanted && !name.starts_with("#sql")
}
