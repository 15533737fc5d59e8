//! The storage of a `MemEnv`: files and names, each as programs see it and as the device holds it.

use crate::env::{BLOCK, SECTOR};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// SplitMix64, to choose the changes that survive a crash.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// How much of the unsynced changes survives.
#[derive(Clone, Copy)]
enum Survival {
    Nothing,
    All,
    Prefix,
    AnyWhole,
    AnySectors,
}

impl Survival {
    fn choose(seed: u64, rng: &mut Rng) -> Self {
        match (seed, rng.below(5)) {
            (0, _) | (_, 0) => Self::Nothing,
            (_, 1) => Self::All,
            (_, 2) => Self::Prefix,
            (_, 3) => Self::AnyWhole,
            _ => Self::AnySectors,
        }
    }

    /// Whether an unsynced change of length survives.
    fn keeps_cut(self, rng: &mut Rng) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Prefix | Self::AnyWhole | Self::AnySectors => rng.flip(),
        }
    }

    /// Chooses which of `count` unsynced changes, given in the order in which they were made,
    /// survive a power cut as a whole or in part.
    fn pick(self, count: usize, rng: &mut Rng) -> Vec<bool> {
        let prefix = rng.below(count as u64 + 1) as usize;
        (0..count)
            .map(|at| match self {
                Self::Nothing => false,
                Self::All => true,
                Self::Prefix => at < prefix,
                Self::AnyWhole | Self::AnySectors => rng.flip(),
            })
            .collect()
    }
}

struct Write {
    offset: usize,
    bytes: Vec<u8>,
}

/// A file.
#[derive(Default)]
pub(super) struct Inode {
    /// Content as programs see it.
    pub live: Vec<u8>,
    /// Content of the file on the simulated device, without the unsynced changes, which are in
    /// `cut` and `pending`.
    stored: Vec<u8>,
    /// Unsynced writes, in order.
    pending: Vec<Write>,
    /// The shortest length to which the file was cut since the last sync; `None` if it was not cut.
    /// The device makes the cut before all pending writes.
    cut: Option<usize>,
    /// Offset up to which disk space is reserved; it may lie beyond the end of the file.
    aside: usize,
}

fn write_at(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

impl Inode {
    pub(super) fn durable(content: Vec<u8>) -> Self {
        Self {
            stored: content.clone(),
            live: content,
            ..Self::default()
        }
    }

    /// Blocks of the file's bytes and of its reserved space, without the block for the file itself.
    fn blocks(&self) -> usize {
        self.live.len().max(self.aside).div_ceil(BLOCK)
    }

    /// Additional blocks that the file needs to reach up to `end`.
    pub(super) fn blocks_to_reach(&self, end: usize) -> usize {
        end.div_ceil(BLOCK).saturating_sub(self.blocks())
    }

    pub(super) fn allocate(&mut self, end: usize) {
        self.aside = self.aside.max(end);
        // A later write within this room must not copy the file, as it would not on a disk.
        for content in [&mut self.live, &mut self.stored] {
            content.reserve(end.saturating_sub(content.len()));
        }
    }

    /// Blocks reserved behind the end of the file.
    pub(super) fn blocks_aside(&self) -> usize {
        self.blocks() - self.live.len().div_ceil(BLOCK)
    }

    /// Writes bytes, not durably.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        write_at(&mut self.live, offset, bytes);
        self.pending.push(Write {
            offset,
            bytes: bytes.to_vec(),
        });
    }

    /// Whether an unsynced write overlaps `range`.
    pub(super) fn is_pending(&self, range: Range<usize>) -> bool {
        let overlaps = |w: &Write| w.offset < range.end && range.start < w.offset + w.bytes.len();
        self.pending.iter().any(overlaps)
    }

    /// Changes the length, not durably.
    pub(super) fn set_len(&mut self, len: usize) {
        self.live.resize(len, 0);
        self.aside = self.aside.min(len);
        for write in &mut self.pending {
            write.bytes.truncate(len.saturating_sub(write.offset));
        }
        self.pending.retain(|write| !write.bytes.is_empty());
        self.cut = Some(self.cut.map_or(len, |cut| cut.min(len)));
    }

    /// Makes all writes durable.
    pub(super) fn sync(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.stored.truncate(cut);
        }
        for write in self.pending.drain(..) {
            write_at(&mut self.stored, write.offset, &write.bytes);
        }
        self.stored.resize(self.live.len(), 0);
    }

    /// Writes these bytes durably; other unsynced writes stay unsynced.
    pub(super) fn write_durable(&mut self, offset: usize, bytes: &[u8]) {
        write_at(&mut self.live, offset, bytes);
        write_at(&mut self.stored, offset, bytes);
        // A later sync applies the unsynced writes in order. Put the same bytes into older unsynced
        // writes of this range, so that they do not undo this write then.
        for older in &mut self.pending {
            let from = offset.max(older.offset);
            let to = (offset + bytes.len()).min(older.offset + older.bytes.len());
            if from < to {
                older.bytes[from - older.offset..to - older.offset]
                    .copy_from_slice(&bytes[from - offset..to - offset]);
            }
        }
    }

    pub(super) fn make_all_durable(&mut self) {
        self.pending.clear();
        self.cut = None;
        self.stored = self.live.clone();
    }

    fn after_power_cut(&self, survival: Survival, rng: &mut Rng) -> Self {
        let mut content = self.stored.clone();
        if let Some(cut) = self.cut.filter(|_| survival.keeps_cut(rng)) {
            content.truncate(cut);
        }
        let picked = survival.pick(self.pending.len(), rng);
        for (write, _) in self.pending.iter().zip(picked).filter(|(_, kept)| *kept) {
            if !matches!(survival, Survival::AnySectors) {
                write_at(&mut content, write.offset, &write.bytes);
                continue;
            }
            let mut at = 0;
            while at < write.bytes.len() {
                let len = (SECTOR - (write.offset + at) % SECTOR).min(write.bytes.len() - at);
                if rng.flip() {
                    write_at(&mut content, write.offset + at, &write.bytes[at..at + len]);
                }
                at += len;
            }
        }
        Self {
            aside: self.aside,
            ..Self::durable(content)
        }
    }

    fn copy(&self) -> Self {
        Self {
            live: self.live.clone(),
            stored: self.stored.clone(),
            cut: self.cut,
            aside: self.aside,
            pending: self
                .pending
                .iter()
                .map(|w| Write {
                    offset: w.offset,
                    bytes: w.bytes.clone(),
                })
                .collect(),
        }
    }
}

pub(super) type File = Arc<Mutex<Inode>>;
type Names = BTreeMap<PathBuf, File>;

/// An unsynced change of a directory.
#[derive(Clone)]
enum DirectoryChange {
    Link(PathBuf, File),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf, File),
    RenameDir(PathBuf, PathBuf),
}

impl DirectoryChange {
    /// The directory whose sync makes the change durable.
    fn dir(&self) -> &Path {
        match self {
            Self::Link(path, _)
            | Self::Unlink(path)
            | Self::Rename(_, path, _)
            | Self::RenameDir(_, path) => dir_of(path),
        }
    }

    fn apply(self, names: &mut Names) {
        match self {
            Self::Link(path, file) => {
                names.insert(path, file);
            }
            Self::Unlink(path) => {
                names.remove(&path);
            }
            Self::Rename(from, to, file) => {
                if names.get(&from).is_some_and(|f| Arc::ptr_eq(f, &file)) {
                    names.remove(&from);
                }
                names.insert(to, file);
            }
            Self::RenameDir(from, to) => {
                let inside = |path: &PathBuf| path.starts_with(&from);
                let moved: Vec<PathBuf> = names.keys().filter(|p| inside(p)).cloned().collect();
                for path in moved {
                    let file = names.remove(&path).expect("it was just found");
                    names.insert(moved_path(&path, &from, &to), file);
                }
            }
        }
    }
}

/// The new path of `path` after the directory `from`, in which it lies, was renamed to `to`.
fn moved_path(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
        Ok(rest) => to.join(rest),
        Err(_) => path.to_owned(),
    }
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// All files and names.
#[derive(Default)]
pub(super) struct Disk {
    dirs: BTreeSet<PathBuf>,
    live: Names,
    stored: Names,
    pending: Vec<DirectoryChange>,
}

impl Disk {
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.parent().is_none() || path.as_os_str().is_empty() || self.dirs.contains(path)
    }

    pub(super) fn add_dirs(&mut self, path: &Path) {
        for dir in path.ancestors() {
            self.dirs.insert(dir.to_owned());
        }
    }

    pub(super) fn list(&self, dir: &Path) -> Option<Vec<String>> {
        let name = |path: &Path| {
            let inside = dir_of(path) == dir && path.file_name().is_some();
            inside.then(|| {
                path.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            })
        };
        let entries = self.live.keys().chain(&self.dirs);
        self.is_dir(dir)
            .then(|| entries.filter_map(|path| name(path)).collect())
    }

    /// Blocks of all files; each file takes one besides its bytes.
    pub(super) fn used_blocks(&self) -> usize {
        let files: BTreeMap<usize, &File> = self
            .live
            .values()
            .map(|file| (Arc::as_ptr(file) as usize, file))
            .collect();
        files.values().map(|file| 1 + file.lock().blocks()).sum()
    }

    pub(super) fn find(&self, path: &Path) -> Option<File> {
        self.live.get(path).cloned()
    }

    fn change(&mut self, change: DirectoryChange) {
        change.clone().apply(&mut self.live);
        self.pending.push(change);
    }

    /// Creates an empty file; `None` if its directory is missing.
    pub(super) fn create(&mut self, path: &Path) -> Option<File> {
        let file = File::default();
        self.is_dir(dir_of(path)).then(|| {
            self.change(DirectoryChange::Link(path.to_owned(), file.clone()));
            file
        })
    }

    /// Adds a name to a file; `None` if the file or the new directory is missing.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Option<()> {
        let file = self.find(from).filter(|_| self.is_dir(dir_of(to)))?;
        self.change(DirectoryChange::Link(to.to_owned(), file));
        Some(())
    }

    /// The number of names of a file.
    pub(super) fn links(&self, path: &Path) -> Option<u64> {
        let file = self.find(path)?;
        let same = self.live.values().filter(|other| Arc::ptr_eq(other, &file));
        Some(same.count() as u64)
    }

    /// Removes an empty directory.
    pub(super) fn remove_dir(&mut self, path: &Path) -> Option<()> {
        let empty = self.list(path)?.is_empty();
        (empty && self.dirs.remove(path)).then_some(())
    }

    /// Renames a directory. Unsynced changes inside it move with it.
    fn rename_dir(&mut self, from: &Path, to: &Path) -> Option<()> {
        if self.is_dir(to) || self.find(to).is_some() || !self.is_dir(dir_of(to)) {
            return None;
        }
        for change in &mut self.pending {
            let (DirectoryChange::Link(path, _) | DirectoryChange::Unlink(path)) = change else {
                continue;
            };
            *path = moved_path(path, from, to);
        }
        self.dirs = std::mem::take(&mut self.dirs)
            .into_iter()
            .map(|dir| moved_path(&dir, from, to))
            .collect();
        self.change(DirectoryChange::RenameDir(from.to_owned(), to.to_owned()));
        Some(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Option<()> {
        if self.dirs.contains(from) {
            return self.rename_dir(from, to);
        }
        let file = self.find(from).filter(|_| self.is_dir(dir_of(to)))?;
        self.change(DirectoryChange::Rename(
            from.to_owned(),
            to.to_owned(),
            file,
        ));
        Some(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Option<()> {
        self.find(path)?;
        self.change(DirectoryChange::Unlink(path.to_owned()));
        Some(())
    }

    pub(super) fn place(&mut self, path: &Path, inode: Inode) {
        self.add_dirs(dir_of(path));
        let change = DirectoryChange::Link(path.to_owned(), Arc::new(Mutex::new(inode)));
        change.clone().apply(&mut self.live);
        change.apply(&mut self.stored);
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        let (done, left) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.dir() == dir);
        self.pending = left;
        let done: Vec<DirectoryChange> = done;
        for change in done {
            change.apply(&mut self.stored);
        }
    }

    pub(super) fn after_power_cut(&self, seed: u64, rng: &mut Rng) -> Self {
        let mut names = self.stored.clone();
        let picked = Survival::choose(seed, rng).pick(self.pending.len(), rng);
        let kept = |(_, kept): &(&DirectoryChange, &bool)| **kept;
        for (change, _) in self.pending.iter().zip(&picked).filter(kept) {
            change.clone().apply(&mut names);
        }
        let survival = Survival::choose(seed, rng);
        let names = copy_names([&names], |inode| inode.after_power_cut(survival, rng));
        let [live] = names;
        // If the rename of a directory does not survive the power cut, give the directory its old
        // name back.
        let mut dirs = self.dirs.clone();
        let lost = self.pending.iter().zip(picked).filter(|(_, kept)| !*kept);
        let lost: Vec<&DirectoryChange> = lost.map(|(change, _)| change).collect();
        for change in lost.into_iter().rev() {
            if let DirectoryChange::RenameDir(from, to) = change {
                dirs = dirs.iter().map(|dir| moved_path(dir, to, from)).collect();
            }
        }
        Self {
            dirs,
            stored: live.clone(),
            live,
            pending: Vec::new(),
        }
    }

    pub(super) fn deep_copy(&self) -> Self {
        let mut pending = Names::new();
        for (at, change) in self.pending.iter().enumerate() {
            if let DirectoryChange::Link(_, file) | DirectoryChange::Rename(_, _, file) = change {
                pending.insert(PathBuf::from(format!("{at}")), file.clone());
            }
        }
        let [live, stored, copies] =
            copy_names([&self.live, &self.stored, &pending], |inode| inode.copy());
        let copy_of = |at: usize| copies[Path::new(&format!("{at}"))].clone();
        let pending = self.pending.iter().enumerate();
        let pending = pending.map(|(at, change)| match change {
            DirectoryChange::Link(path, _) => DirectoryChange::Link(path.clone(), copy_of(at)),
            DirectoryChange::Unlink(path) => DirectoryChange::Unlink(path.clone()),
            DirectoryChange::Rename(from, to, _) => {
                DirectoryChange::Rename(from.clone(), to.clone(), copy_of(at))
            }
            DirectoryChange::RenameDir(from, to) => {
                DirectoryChange::RenameDir(from.clone(), to.clone())
            }
        });
        Self {
            dirs: self.dirs.clone(),
            live,
            stored,
            pending: pending.collect(),
        }
    }
}

/// Copies the files of several maps from names to files. A file that has several names is copied
/// once, and all of its names refer to the copy.
fn copy_names<const N: usize>(
    maps: [&Names; N],
    mut copy: impl FnMut(&Inode) -> Inode,
) -> [Names; N] {
    let mut copies: BTreeMap<usize, File> = BTreeMap::new();
    maps.map(|names| {
        let copied = names.iter().map(|(path, file)| {
            let key = Arc::as_ptr(file) as usize;
            let made = copies
                .entry(key)
                .or_insert_with(|| Arc::new(Mutex::new(copy(&file.lock()))));
            (path.clone(), made.clone())
        });
        copied.collect()
    })
}
