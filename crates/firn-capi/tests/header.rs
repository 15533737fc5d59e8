//! The C header is what cbindgen makes of the crate. `FIRN_UPDATE_HEADER=1` writes it.
#![allow(clippy::disallowed_methods)] // A test reads and writes its own files.

use std::path::Path;

#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    cbindgen::generate(root)
        .expect("the crate can be read")
        .write(&mut made);
    let made = String::from_utf8(made).expect("a header is text");
    assert!(made.contains("firn_open("), "the header lacks functions");
    let path = root.join("include/firn.h");
    if std::env::var_os("FIRN_UPDATE_HEADER").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folder of the header");
        std::fs::write(&path, &made).expect("write the header");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "include/firn.h is out of date: FIRN_UPDATE_HEADER=1 cargo test -p firn-capi --test header"
    );
}
