//! Which directory a store belongs to.
//!
//! A copy of a data directory has the id of the original and names the same objects. Two servers
//! that store and delete objects below one prefix would lose files of each other. So the object
//! [`OWNER`] has a token of the process that has used the store last, and a file in the data
//! directory has the tokens of its own processes, and the place where the directory lies. A
//! directory is a copy if it has no such file, as after a restore; if its place is another one, as
//! after a copy of all files; or if the store has a token that it does not know, as after a return
//! to an older snapshot of the disk. A copy may read, since the names of objects have checksums of
//! their bytes; changes are refused.
//!
//! Nothing tells the clone of a machine from the original. So an owner puts its token again each
//! minute, with a number that grows, and says at its end that it is gone. Another process with a
//! token that the directory knows becomes the owner only when this has stood still for two minutes.
//! A server learns before each change whether another one has become the owner.

use crate::names::OWNER;
use firn_objects::{Error, ErrorKind, Files, Open, Result};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first line of the file.
const HEAD: &str = "firn store owner 1";

/// Tokens that are kept. A put of an earlier process may be executed late, so that its token comes
/// back.
const TOKENS_MAX: usize = 8;

/// The file is not larger than this, bytes.
const BYTES_MAX: u64 = 1 << 16;

/// Bytes of the spare file: more than the next file has.
const SPARE_BYTES: usize = 8192;

/// The file in the data directory, and its place.
pub struct OwnerFile {
    /// Files of the data directory.
    pub files: Arc<dyn Files>,
    /// Its path. The directory exists.
    pub path: PathBuf,
    /// Where the directory lies, in one line: machine and path.
    pub place: String,
    /// The store, in one line: its URL.
    pub store: String,
}

/// The contents of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Tokens of the processes of this directory, the newest first.
    pub tokens: Vec<String>,
    /// Why the directory is a copy, if it is one.
    pub copied: Option<String>,
    /// Whether a process of this directory has used this very store before.
    pub used: bool,
}

impl OwnerFile {
    /// Reads the file. Of a copy, there are no tokens.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn known(&self) -> Result<Known> {
        let copied = |why: String| Known {
            copied: Some(why),
            ..Known::default()
        };
        let failed = |error: &io::Error| Error::from_io(error, self.path.display());
        let text = match self.text() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(copied(
                    "this data directory has never used the store".to_owned(),
                ));
            }
            text => text.map_err(|error| failed(&error))?,
        };
        let Some(Contents {
            place,
            store,
            inode,
            tokens,
        }) = parse(&text)
        else {
            return Ok(copied(format!("{} is damaged", self.path.display())));
        };
        if place != self.place {
            let why = format!("this data directory was {place}, and is {} now", self.place);
            return Ok(copied(why));
        }
        let info = self
            .files
            .info(&self.path)
            .map_err(|error| failed(&error))?;
        if inode != info.inode {
            return Ok(copied(
                "the files of this data directory are copies".to_owned(),
            ));
        }
        Ok(Known {
            tokens,
            copied: None,
            used: store == self.store,
        })
    }

    fn text(&self) -> io::Result<String> {
        let file = self.files.open(&self.path, Open::Read)?;
        let mut bytes = vec![0; file.len()?.min(BYTES_MAX) as usize];
        let count = file.read_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }

    /// Writes the tokens, durably. Returns those that were kept.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, tokens: impl IntoIterator<Item = String>) -> Result<Vec<String>> {
        let mut kept: Vec<String> = Vec::new();
        for token in tokens {
            if kept.len() < TOKENS_MAX && !kept.contains(&token) {
                kept.push(token);
            }
        }
        self.replace(&kept)
            .map_err(|error| Error::from_io(&error, self.path.display()))?;
        Ok(kept)
    }

    /// Writes the next file into a spare one that has its blocks already, since files must leave a
    /// disk that is full. The file so far is the next spare.
    fn replace(&self, tokens: &[String]) -> io::Result<()> {
        let (new, old) = (
            self.path.with_extension("new"),
            self.path.with_extension("old"),
        );
        self.find_spare(&new, &old)?;
        let file = self.files.open(&new, Open::Create)?;
        let inode = self.files.info(&new)?.inode;
        let (place, store) = (&self.place, &self.store);
        let mut text = format!("{HEAD}\nplace {place}\nstore {store}\ninode {inode}\n");
        for token in tokens {
            let _ = writeln!(text, "token {token}");
        }
        text += "end\n";
        file.write_at(text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)?;
        file.sync()?;
        let is_kept = self.files.link(&self.path, &old).is_ok();
        self.files.rename(&new, &self.path)?;
        // Without a spare, the next file needs room.
        let _ = match is_kept {
            true => self.files.rename(&old, &new),
            false => self.make_spare(&new),
        };
        self.files
            .sync_directory(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// Makes the file `new` the spare, if there is one, and no name of the file itself. A crash may
    /// have left any of the names.
    fn find_spare(&self, new: &Path, old: &Path) -> io::Result<()> {
        let inode = |path: &Path| self.files.info(path).map(|info| info.inode).ok();
        let current = inode(&self.path);
        if inode(new).is_some() && inode(new) == current {
            self.files.remove(new)?;
        }
        match inode(old) {
            None => Ok(()),
            Some(found) if inode(new).is_none() && Some(found) != current => {
                self.files.rename(old, new)
            }
            Some(_) => self.files.remove(old),
        }
    }

    fn make_spare(&self, path: &Path) -> io::Result<()> {
        let spare = self.files.open(path, Open::Create)?;
        spare.write_at(&[0; SPARE_BYTES], 0)?;
        spare.sync()
    }
}

struct Contents<'a> {
    place: &'a str,
    store: &'a str,
    inode: u64,
    tokens: Vec<String>,
}

/// The contents of a whole file.
fn parse(text: &str) -> Option<Contents<'_>> {
    let rest = text.strip_prefix(HEAD)?.strip_prefix('\n')?;
    let mut lines = rest.strip_suffix("\nend\n")?.split('\n');
    let place = lines.next()?.strip_prefix("place ")?;
    let store = lines.next()?.strip_prefix("store ")?;
    let inode = lines.next()?.strip_prefix("inode ")?.parse().ok()?;
    let tokens = lines.map(|line| Some(line.strip_prefix("token ")?.to_owned()));
    Some(Contents {
        place,
        store,
        inode,
        tokens: tokens.collect::<Option<_>>()?,
    })
}

/// The directory may not change the store.
pub fn refused(why: &str) -> Error {
    let text = format!(
        "it belongs to another copy of this database: {why}. If the other copy is gone for good, delete the object \
         {OWNER}; see docs/cold-files.md"
    );
    Error::new(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_objects::mem::MemFiles;

    fn file(files: &Arc<MemFiles>, place: &str) -> OwnerFile {
        OwnerFile {
            files: Arc::<MemFiles>::clone(files),
            path: "/db/STORE".into(),
            place: place.to_owned(),
            store: "file:///store".to_owned(),
        }
    }

    fn tokens(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{n:032x}")).collect()
    }

    #[test]
    fn tokens_are_kept_in_their_place_and_copies_are_found() {
        let files = Arc::new(MemFiles::new(1, &["/db"]));
        let here = file(&files, "/db on m");
        assert!(here.known().unwrap().copied.is_some());
        let kept = here.write([tokens(3), tokens(20)].concat()).unwrap();
        assert_eq!(kept, tokens(8));
        files.crash();
        let known = here.known().unwrap();
        assert_eq!((known.tokens, known.copied), (tokens(8), None));
        assert!(known.used);
        let other = OwnerFile {
            store: "file:///other".to_owned(),
            ..file(&files, "/db on m")
        };
        assert!(!other.known().unwrap().used);
        // Once more, over the old file.
        here.write(tokens(1)).unwrap();
        assert_eq!(here.known().unwrap().tokens, tokens(1));

        let elsewhere = file(&files, "/db2 on m").known().unwrap();
        assert!(elsewhere.tokens.is_empty());
        assert!(elsewhere.copied.unwrap().contains("/db2 on m"));
        // A copy of the file has another inode.
        let path = Path::new("/db/STORE");
        let old = files.open(path, Open::Read).unwrap();
        let mut bytes = vec![0; old.len().unwrap() as usize];
        old.read_at(&mut bytes, 0).unwrap();
        files.remove(path).unwrap();
        let copy = files.open(path, Open::New).unwrap();
        copy.write_at(&bytes, 0).unwrap();
        let known = here.known().unwrap();
        assert_eq!(
            known.copied.unwrap(),
            "the files of this data directory are copies"
        );
        assert!(known.tokens.is_empty());
    }

    /// With a spare, a full disk stops no write of the file, and a crash at any change leaves the
    /// old file or the new one.
    #[test]
    fn the_file_is_replaced_on_a_full_disk_and_at_crashes() {
        let files = Arc::new(MemFiles::new(3, &["/db"]));
        let here = file(&files, "/db on m");
        files.set_room(0);
        here.write(tokens(1)).unwrap_err();
        files.set_room(u64::MAX);
        here.write(tokens(1)).unwrap();
        files.set_room(0);
        for count in [3, 5, 2, 8] {
            here.write(tokens(count)).unwrap();
            assert_eq!(here.known().unwrap().tokens, tokens(count));
        }
        files.set_room(u64::MAX);
        let mut before = tokens(8);
        for round in 0..400 {
            let after = tokens(1 + round % 8);
            files.set_fuse(round as u64 % 13);
            let written = here.write(after.clone());
            match round % 3 {
                0 => files.kill(),
                _ => files.crash(),
            }
            let known = here.known().unwrap();
            match written {
                Ok(_) => assert_eq!(known.tokens, after, "{round}"),
                Err(_) => assert!([&before, &after].contains(&&known.tokens), "{round}"),
            }
            before = known.tokens;
        }
    }

    #[test]
    fn a_damaged_file_tells_no_tokens() {
        let files = Arc::new(MemFiles::new(1, &["/db"]));
        let here = file(&files, "/db on m");
        here.write(tokens(2)).unwrap();
        let path = Path::new("/db/STORE");
        let len = files.info(path).unwrap().bytes;
        for shorter in 0..len {
            here.write(tokens(2)).unwrap();
            assert_eq!(here.known().unwrap().tokens, tokens(2));
            let file = files.open(path, Open::Write).unwrap();
            file.set_len(shorter).unwrap();
            let known = here.known().unwrap();
            assert!(known.tokens.is_empty(), "{shorter}");
            assert!(known.copied.is_some(), "{shorter}");
        }
    }
}
