//! Lists the objects of a directory in the order of their names, a page at a time.

use crate::env::Files;
use crate::error::{Error, Result};
use crate::store::{ObjectInfo, Page, check_name};
use std::io;
use std::path::Path;

/// Objects of a page.
const PAGE: usize = 1000;

/// The names above `after` that begin with `prefix`. Only directories that can hold one are read.
pub fn page(files: &dyn Files, root: &Path, prefix: &str, after: &str) -> Result<Page<ObjectInfo>> {
    let mut walk = Walk {
        files,
        root,
        prefix,
        after,
        page: Page::default(),
    };
    walk.directory("")?;
    Ok(walk.page)
}

struct Walk<'a> {
    files: &'a dyn Files,
    root: &'a Path,
    prefix: &'a str,
    after: &'a str,
    page: Page<ObjectInfo>,
}

impl Walk<'_> {
    /// `base` is empty, or ends with a slash.
    fn directory(&mut self, base: &str) -> Result<()> {
        let entries = match self.files.list(&self.root.join(base)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| Error::from_io(&error, base))?,
        };
        // A directory comes where the names in it do: `a-` before `a/`. What has no name of an
        // object belongs to somebody else, such as `lost+found`.
        let slash = |directory: bool| if directory { "/" } else { "" };
        let names = entries.iter().filter_map(|entry| {
            let name = format!("{base}{}", entry.name);
            check_name(&name).ok()?;
            Some(name + slash(entry.is_directory))
        });
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        for name in names {
            if self.page.next.is_some() {
                break;
            }
            if name.ends_with('/') {
                let holds_prefix = name.starts_with(self.prefix) || self.prefix.starts_with(&name);
                let is_past = self.after > name.as_str() && !self.after.starts_with(&name);
                if holds_prefix && !is_past {
                    self.directory(&name)?;
                }
            } else if name.starts_with(self.prefix) && name.as_str() > self.after {
                self.object(name)?;
            }
        }
        Ok(())
    }

    fn object(&mut self, name: String) -> Result<()> {
        if self.page.items.len() == PAGE {
            self.page.next = self.page.items.last().map(|last| last.name.clone());
            return Ok(());
        }
        match self.files.info(&self.root.join(&name)) {
            // Deleted since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            info => {
                let info = info.map_err(|error| Error::from_io(&error, &name))?;
                self.page.items.push(ObjectInfo {
                    name,
                    bytes: info.bytes,
                    modified_s: info.modified_s,
                });
            }
        }
        Ok(())
    }
}
