//! Fails if a module imports a module that is not on a lower layer.

use std::fs;
use std::path::{Path, PathBuf};

/// Layers, lowest first. Modules of one layer never import each other.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["env", "keycode", "rowcode"],
    &["cache", "store", "binlog"],
    &["memtable", "wal", "sst", "blob"],
    &["version"],
    &["iter"],
    &["read", "write", "compaction", "ingest"],
    &["txn"],
    &["catalog", "backup"],
    &["table"],
    &["db"],
    &["temporary"],
];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The modules that a source text names after `crate::`, as in `crate::a::…` and
/// `crate::{a, b::c}`.
fn imported_modules(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("crate::") {
        let rest = &source[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut word = String::new();
            let mut at_start = true;
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 1 && (c.is_alphanumeric() || c == '_') && at_start {
                    word.push(c);
                } else if !word.is_empty() {
                    found.push(std::mem::take(&mut word));
                    at_start = false;
                }
                if depth == 1 && c == ',' {
                    at_start = true;
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
            found.push(rest.chars().take_while(is_word).collect());
        }
    }
    found
}

fn violations(module: &str, source: &str) -> Vec<String> {
    let own = layer_of(module);
    imported_modules(source)
        .into_iter()
        .filter(|import| import != module)
        .filter(|import| match (own, layer_of(import)) {
            (Some(own), Some(other)) => other >= own,
            _ => true,
        })
        .collect()
}

#[test]
fn imports_run_downward() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 10);
    let mut bad = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&src).unwrap();
        let module = relative.iter().next().unwrap().to_str().unwrap();
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if module == "lib" {
            continue;
        }
        assert!(layer_of(module).is_some(), "module {module} is in no layer");
        for import in violations(module, &fs::read_to_string(&file).unwrap()) {
            bad.push(format!("{}: {module} imports {import}", relative.display()));
        }
    }
    assert!(
        bad.is_empty(),
        "imports against the layers:\n{}",
        bad.join("\n")
    );
}

#[test]
fn an_upward_import_is_seen() {
    assert_eq!(violations("sst", "use crate::version::Edit;"), ["version"]);
    assert_eq!(violations("sst", "use crate::wal::Lsn;"), ["wal"]);
    assert_eq!(
        violations("sst", "use crate::{base::{Error, Result}, db::Db};"),
        ["db"]
    );
    assert!(
        violations(
            "sst",
            "use crate::{base::Error, cache};\nuse crate::sst::Block;"
        )
        .is_empty()
    );
}
