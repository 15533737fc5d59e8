//! Where the invented databases are.

use firn::env::{Env, MemEnv, PosixEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The memory, or a directory of the operating system.
pub(super) struct Place {
    dir: Option<PathBuf>,
}

impl Place {
    pub(super) fn new(dir: Option<&Path>) -> Self {
        Self {
            dir: dir.map(Path::to_owned),
        }
    }

    /// An environment and an empty directory in it. Each `name` may be used once.
    pub(super) fn empty(&self, name: &str) -> (Arc<dyn Env>, PathBuf) {
        let env: Arc<dyn Env> = match self.dir {
            Some(_) => Arc::new(PosixEnv::new()),
            None => Arc::new(MemEnv::new()),
        };
        let root = self.dir.as_deref().unwrap_or(Path::new("/"));
        let dir = root.join(name);
        env.create_dir_all(&dir).expect("a directory can be made");
        assert!(
            env.list_dir(&dir).expect("it is there").is_empty(),
            "{} is in use",
            dir.display()
        );
        (env, dir)
    }
}
