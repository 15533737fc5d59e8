//! Which files make up the tree: edits, versions, manifest.
