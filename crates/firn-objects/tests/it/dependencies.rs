//! The plugin is loaded into a GPL-2.0 process: some libraries stay out.

use std::process::Command;

#[test]
fn cryptography_is_the_systems_openssl() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            // Cargo unites the features of all that it builds with the plugin, as the command firn.
            "--workspace",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .args([
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let tree = String::from_utf8(tree.stdout).unwrap();
    let names: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains(&"openssl"), "{tree}");
    for banned in ["ring", "aws-lc-rs", "aws-lc-sys", "rustls", "openssl-src"] {
        assert!(
            !names.contains(&banned),
            "{banned} is among the dependencies"
        );
    }
}
