//! Writes the C header `include/firn.h` from the exported items of this crate.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=cbindgen.toml");
    let root = std::env::var("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&root);
    // Leaves the file alone when its contents would not change, so that nothing is compiled anew.
    cbindgen::generate(root)?.write_to_file(root.join("include/firn.h"));
    Ok(())
}
