//! Local files in memory that a crash reduces to what was synced, and to some of the rest.
//!
//! A file has its pages of 4 KiB, and for each whether it is a hole. A crash keeps each write since
//! the last sync, or not, by page; and each change of a directory since its last sync, or not.

use crate::env::{Entry, FileInfo, Files, LocalFile, Open};
use crate::random::SplitMix64;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// The unit of holes and of torn writes.
const PAGE: u64 = 4096;

/// See the module.
pub struct MemFiles {
    inner: Mutex<Inner>,
    ends: Arc<Ends>,
}

/// When things end, in operations from now.
struct Ends {
    /// Writes until the disk is full.
    room: AtomicU64,
    /// Changes until the process is dead.
    fuse: AtomicU64,
    /// There is no room for another directory.
    refuses_directories: AtomicBool,
}

impl Ends {
    /// Counts an operation. False if there is none left.
    fn count(left: &AtomicU64) -> bool {
        let less = |left: u64| match left {
            u64::MAX => Some(left),
            _ => left.checked_sub(1),
        };
        left.fetch_update(SeqCst, SeqCst, less).is_ok()
    }

    /// Counts a change.
    fn burn(&self) -> io::Result<()> {
        match Self::count(&self.fuse) {
            true => Ok(()),
            false => Err(io::Error::other("the process is dead")),
        }
    }
}

struct Inner {
    random: SplitMix64,
    last_inode: u64,
    /// Names as all see them, and as a crash is sure to leave them.
    names: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
}

#[derive(Clone)]
enum Node {
    Directory,
    File(Arc<MemFile>),
}

struct MemFile {
    inode: u64,
    content: Mutex<Content>,
    ends: Arc<Ends>,
}

#[derive(Clone, Default)]
struct Content {
    now: Pages,
    synced: Pages,
}

#[derive(Clone, Default)]
struct Pages {
    len: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl MemFiles {
    /// Only the directories `roots`, and those above them, exist.
    pub fn new(seed: u64, roots: &[&str]) -> Self {
        let above = roots.iter().flat_map(|root| Path::new(root).ancestors());
        let names: BTreeMap<_, _> = above
            .map(|path| (path.to_owned(), Node::Directory))
            .collect();
        Self {
            inner: Mutex::new(Inner {
                random: SplitMix64::new(seed),
                last_inode: 0,
                durable: names.clone(),
                names,
            }),
            ends: Arc::new(Ends {
                room: AtomicU64::new(u64::MAX),
                fuse: AtomicU64::new(u64::MAX),
                refuses_directories: AtomicBool::new(false),
            }),
        }
    }

    /// After so many more writes of files that take room the disk is full.
    pub fn set_room(&self, writes: u64) {
        self.ends.room.store(writes, SeqCst);
    }

    /// Whether there is no room for another directory.
    pub fn refuse_directories(&self, refuse: bool) {
        self.ends.refuses_directories.store(refuse, SeqCst);
    }

    /// The process dies after so many more changes: all that follow fail, up to [`Self::crash`] or
    /// [`Self::kill`].
    pub fn set_fuse(&self, changes: u64) {
        self.ends.fuse.store(changes, SeqCst);
    }

    /// The process is killed, and the machine lives on: nothing is lost. Open files must not be
    /// used afterwards.
    pub fn kill(&self) {
        self.set_fuse(u64::MAX);
    }

    /// Loses what was not synced: the power fails. Open files must not be used afterwards.
    pub fn crash(&self) {
        self.kill();
        let mut inner = self.inner.lock();
        let Inner {
            random,
            names,
            durable,
            ..
        } = &mut *inner;
        let changed: BTreeSet<&PathBuf> = names.keys().chain(durable.keys()).collect();
        let mut after = BTreeMap::new();
        // In the order of paths, so that a directory comes before what is in it.
        for path in changed {
            let node = match (names.get(path), durable.get(path)) {
                (Some(now), Some(old)) if same(now, old) => Some(now),
                (now, old) => {
                    if random.per_mille(500) {
                        now
                    } else {
                        old
                    }
                }
            };
            let has_parent = path
                .parent()
                .is_none_or(|parent| after.contains_key(parent));
            if let Some(node) = node.filter(|_| has_parent) {
                after.insert(path.clone(), node.clone());
            }
        }
        for node in after.values() {
            if let Node::File(file) = node {
                file.content.lock().crash(random);
            }
        }
        *names = after.clone();
        *durable = after;
    }

    fn find(&self, path: &Path) -> io::Result<Node> {
        let found = self.inner.lock().names.get(path).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Changes a bit of what a file holds. Returns false if there is nothing at that place.
    pub fn damage(&self, path: &Path, at: u64) -> bool {
        let Ok(Node::File(file)) = self.find(path) else {
            return false;
        };
        let mut content = file.content.lock();
        match content.now.pages.get_mut(&(at / PAGE)) {
            Some(page) => {
                page[(at % PAGE) as usize] ^= 1;
                true
            }
            None => false,
        }
    }

    /// The room that files below a directory take, in bytes.
    pub fn allocated(&self, below: &Path) -> u64 {
        let inner = self.inner.lock();
        let files = inner
            .names
            .iter()
            .filter(|(path, _)| path.starts_with(below));
        let pages = files.map(|(_, node)| match node {
            Node::File(file) => file.content.lock().now.pages.len() as u64 * PAGE,
            Node::Directory => 0,
        });
        pages.sum()
    }
}

fn same(a: &Node, b: &Node) -> bool {
    match (a, b) {
        (Node::File(a), Node::File(b)) => Arc::ptr_eq(a, b),
        (Node::Directory, Node::Directory) => true,
        _ => false,
    }
}

impl Inner {
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        match path.parent().and_then(|parent| self.names.get(parent)) {
            Some(Node::Directory) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Content {
    fn crash(&mut self, random: &mut SplitMix64) {
        let mut after = Pages {
            len: if random.per_mille(500) {
                self.now.len
            } else {
                self.synced.len
            },
            pages: BTreeMap::new(),
        };
        let indices: BTreeSet<u64> = self
            .now
            .pages
            .keys()
            .chain(self.synced.pages.keys())
            .copied()
            .collect();
        for index in indices {
            let (now, old) = (self.now.pages.get(&index), self.synced.pages.get(&index));
            let kept = if now == old || random.per_mille(500) {
                now
            } else {
                old
            };
            if let Some(page) = kept.filter(|_| index * PAGE < after.len) {
                after.pages.insert(index, page.clone());
            }
        }
        self.now = after.clone();
        self.synced = after;
    }
}

impl Files for MemFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn LocalFile>> {
        let mut inner = self.inner.lock();
        let file = match (inner.names.get(path), how) {
            (Some(Node::Directory), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(_), Open::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(file)), _) => file.clone(),
            (None, Open::Read | Open::Write) => return Err(io::ErrorKind::NotFound.into()),
            (None, Open::Create | Open::New) => {
                inner.check_parent(path)?;
                self.ends.burn()?;
                inner.last_inode += 1;
                let file = Arc::new(MemFile {
                    inode: inner.last_inode,
                    content: Mutex::default(),
                    ends: self.ends.clone(),
                });
                inner
                    .names
                    .insert(path.to_owned(), Node::File(file.clone()));
                file
            }
        };
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ends.burn()?;
        let mut inner = self.inner.lock();
        inner.check_parent(to)?;
        let node = inner.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ends.burn()?;
        let mut inner = self.inner.lock();
        inner.check_parent(to)?;
        if inner.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = inner
            .names
            .get(from)
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.ends.burn()?;
        let mut inner = self.inner.lock();
        match inner.names.get(path) {
            Some(Node::File(_)) => inner.names.remove(path),
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.ends.burn()?;
        let mut inner = self.inner.lock();
        if inner.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        inner
            .names
            .remove(path)
            .map(|_| ())
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.ends.burn()?;
        let mut inner = self.inner.lock();
        inner.check_parent(path)?;
        match inner.names.get(path) {
            Some(Node::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(Node::Directory) => {}
            None if self.ends.refuses_directories.load(SeqCst) => {
                return Err(io::ErrorKind::StorageFull.into());
            }
            None => drop(inner.names.insert(path.to_owned(), Node::Directory)),
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.ends.burn()?;
        let mut inner = self.inner.lock();
        let Inner { names, durable, .. } = &mut *inner;
        let inside = |name: &Path| name.parent() == Some(path);
        durable.retain(|name, _| !inside(name));
        let now = names.iter().filter(|(name, _)| inside(name));
        durable.extend(now.map(|(name, node)| (name.clone(), node.clone())));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        match self.find(path)? {
            Node::Directory => {}
            Node::File(_) => return Err(io::ErrorKind::NotADirectory.into()),
        }
        let inner = self.inner.lock();
        let inside = inner
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(path));
        let entries = inside.filter_map(|(name, node)| {
            Some(Entry {
                name: name.file_name()?.to_str()?.to_owned(),
                is_directory: matches!(node, Node::Directory),
            })
        });
        Ok(entries.collect())
    }

    fn info(&self, path: &Path) -> io::Result<FileInfo> {
        let (bytes, inode) = match self.find(path)? {
            Node::File(file) => (file.content.lock().now.len, file.inode),
            Node::Directory => (0, 0),
        };
        Ok(FileInfo {
            bytes,
            modified_s: 0,
            inode,
        })
    }
}

impl LocalFile for MemFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = self.content.lock();
        let end = content.now.len.min(offset + into.len() as u64);
        let mut at = offset;
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            let to = &mut into[(at - offset) as usize..(stop - offset) as usize];
            match content.now.pages.get(&(at / PAGE)) {
                Some(page) => {
                    let from = (at % PAGE) as usize;
                    to.copy_from_slice(&page[from..from + to.len()]);
                }
                None => to.fill(0),
            }
            at = stop;
        }
        Ok(end.saturating_sub(offset) as usize)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.ends.burn()?;
        let mut content = self.content.lock();
        let pages = offset / PAGE..(offset + bytes.len() as u64).div_ceil(PAGE);
        let takes_room = { pages }.any(|page| !content.now.pages.contains_key(&page));
        let is_full = takes_room && !Ends::count(&self.ends.room);
        // Of a write that does not fit, a part does.
        let bytes = if is_full {
            &bytes[..bytes.len() / 2]
        } else {
            bytes
        };
        let end = offset + bytes.len() as u64;
        content.now.len = content.now.len.max(end);
        let mut at = offset;
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            let empty = || vec![0; PAGE as usize].into_boxed_slice();
            let page = content.now.pages.entry(at / PAGE).or_insert_with(empty);
            let from = (at % PAGE) as usize;
            let part = &bytes[(at - offset) as usize..(stop - offset) as usize];
            page[from..from + part.len()].copy_from_slice(part);
            at = stop;
        }
        if is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.ends.burn()?;
        let mut content = self.content.lock();
        content.synced = content.now.clone();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().now.len)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.ends.burn()?;
        let mut content = self.content.lock();
        content.now.len = bytes;
        content.now.pages.retain(|index, _| index * PAGE < bytes);
        Ok(())
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        self.ends.burn()?;
        let mut content = self.content.lock();
        let whole = range.start.div_ceil(PAGE)..range.end / PAGE;
        content.now.pages.retain(|index, _| !whole.contains(index));
        let parts = [
            range.start..range.end.min(whole.start * PAGE),
            whole.end * PAGE..range.end,
        ];
        for part in parts {
            for at in part.start.max(range.start)..part.end {
                if let Some(page) = content.now.pages.get_mut(&(at / PAGE)) {
                    page[(at % PAGE) as usize] = 0;
                }
            }
        }
        // The end of the file ends its last page.
        if range.end >= content.now.len {
            let first = range.start.div_ceil(PAGE);
            content.now.pages.retain(|index, _| *index < first);
        }
        Ok(())
    }

    fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        let content = self.content.lock();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for index in content.now.pages.keys() {
            let page = index * PAGE..((index + 1) * PAGE).min(content.now.len);
            match ranges.last_mut() {
                Some(last) if last.end == page.start => last.end = page.end,
                _ => ranges.push(page),
            }
        }
        Ok(ranges)
    }
}
