//! Files of L0 that damaged files keep from leaving L0.

use super::l0_overlap::{FileInRun, L0Overlap};
use crate::base::key_range::DisjointRanges;
use crate::version::{FileHandle, FileMeta, Version};
use std::collections::HashSet;
use std::sync::Arc;

/// The files of L0 that no compaction may take out of L0: those in quarantine, those that overlap a
/// file in quarantine in the levels down to the base, and those that overlap an older file of this
/// kind. Each older file that another file of L0 overlaps may leave L0, too. So nothing moves below
/// older data.
///
/// Example: file B is damaged. C overlaps it and is newer, and D overlaps C and is newer, so both
/// are held. A is older than B, and E overlaps none of the others, so both may sink.
///
/// ```text
/// run 4            [  D  ]  [ E ]
/// run 3       [  C  ]
/// run 2   [  B  ]
/// run 1     [  A  ]
/// ```
#[derive(Default)]
pub(super) struct HeldFiles<'a> {
    ids: HashSet<u64>,
    /// Held files that may be merged with each other, newest run first. No file in quarantine lies
    /// between the runs of one group.
    groups: Vec<Vec<FileInRun<'a>>>,
}

/// A merge takes a run of a group only if it is at most this many times as large as all newer ones
/// of the group. So the sizes of the runs that a group keeps grow by this factor from run to run,
/// and they stay few.
const TAKEN_SIZE_MAX: u64 = 2;

impl<'a> HeldFiles<'a> {
    /// The held files of `version`, in which L0 is compacted into the level `base`.
    pub(super) fn of(version: &'a Version, base: u8) -> Self {
        let near = |level: u8| level <= base;
        if !version.quarantine().iter().any(|d| near(d.level)) {
            return Self::default();
        }
        let mut ranges = DisjointRanges::default();
        let below = version.quarantine().iter();
        below
            .filter(|d| d.level > 0 && near(d.level))
            .for_each(|d| ranges.add(d.meta.range()));
        let mut held: Vec<FileInRun<'a>> = Vec::new();
        for (at, run) in version.l0.iter().enumerate().rev() {
            let is_held = |file: &&Arc<FileHandle>| {
                version.in_quarantine(file.file_id)
                    || ranges.find(&file.smallest, &file.largest).is_some()
            };
            let of_run: Vec<_> = run.files.iter().filter(is_held).collect();
            of_run.iter().for_each(|file| ranges.add(file.range()));
            held.extend(of_run.into_iter().map(|file| (at, file)));
        }
        held.sort_by_key(|(at, _)| *at);
        // Each held file lies in one of the ranges.
        let mut by_range = vec![Vec::new(); ranges.as_slice().len()];
        for (at, file) in &held {
            if let Some(of) = ranges.find(&file.smallest, &file.smallest) {
                by_range[of.start].push((*at, *file));
            }
        }
        let groups = by_range.into_iter();
        let groups = groups.flat_map(|of_range| groups_between_damage(version, of_range));
        Self {
            groups: groups.collect(),
            ids: held.iter().map(|(_, file)| file.file_id).collect(),
        }
    }

    /// Whether the file must stay in L0.
    pub(super) fn has(&self, file: &FileHandle) -> bool {
        self.ids.contains(&file.file_id)
    }

    /// Whether no file is held.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The files of L0 that are not held.
    pub(super) fn others(&self, version: &'a Version) -> impl Iterator<Item = &'a Arc<FileHandle>> {
        let all = version.l0.iter().flat_map(|run| run.files.iter());
        all.filter(|file| !self.has(file))
    }

    /// The sets of held files that jobs should merge into one run of L0: of the newest runs of each
    /// group the chains of overlapping files that have at least `due` runs.
    ///
    /// The keys of a chain leave no gap, and each file of its newest run that overlaps an older one
    /// of the chain belongs to it. So the output overlaps no other file of that run.
    pub(super) fn merges(&self, due: usize) -> impl Iterator<Item = L0Overlap<'a>> {
        let newest = |group: &Vec<FileInRun<'a>>| {
            let (mut size, mut taken) = (0, 0);
            for of_run in group.chunk_by(|a, b| a.0 == b.0) {
                let own: u64 = of_run.iter().map(|(_, file)| file.size).sum();
                if taken > 0 && own > TAKEN_SIZE_MAX * size {
                    break;
                }
                (size, taken) = (size + own, taken + of_run.len());
            }
            L0Overlap::chains(group[..taken].to_vec())
        };
        let chains = self.groups.iter().flat_map(newest);
        chains.filter(move |chain| chain.runs() >= due.max(2))
    }

    /// The sets of files that jobs should merge into one run of L0 because one of them lies across
    /// the edge of a damaged file. A merge ends files there ([`Version::edges`]), after which what
    /// lies beside the damage can leave L0.
    pub(super) fn across_edges(&self, version: &Version) -> Vec<L0Overlap<'a>> {
        let edges = version.edges(0);
        let chains = { self.groups.iter() }.flat_map(|group| L0Overlap::chains(group.clone()));
        let parts = |chain: L0Overlap<'a>| -> Vec<L0Overlap<'a>> {
            let across = chain.files().filter(|(_, file)| crosses(edges, file));
            across
                .map(|file| chain.take(&chain.part_above(file)))
                .collect()
        };
        chains.flat_map(parts).collect()
    }

    /// Bytes of the blobs to which the held files refer.
    pub(super) fn blob_bytes(&self, version: &Version) -> u128 {
        let all = version.l0.iter().flat_map(|run| run.files.iter());
        let held = all.filter(|file| self.has(file));
        held.map(|file| u128::from(file.blob_bytes())).sum()
    }
}

/// Whether the file has keys on both sides of one of the `edges`, which ascend.
pub(super) fn crosses(edges: &[Vec<u8>], file: &FileMeta) -> bool {
    let ahead = edges.partition_point(|edge| *edge <= file.smallest);
    edges.get(ahead).is_some_and(|edge| *edge <= file.largest)
}

/// Divides `files`, newest run first, where a file in quarantine lies between them. A file of the
/// same run as one in quarantine belongs to no group, because the output of a job that takes it
/// would overlap that one.
fn groups_between_damage<'a>(
    version: &Version,
    files: Vec<FileInRun<'a>>,
) -> Vec<Vec<FileInRun<'a>>> {
    let is_damaged = |file: &FileHandle| version.in_quarantine(file.file_id);
    let mut groups = vec![Vec::new()];
    for of_run in files.chunk_by(|a, b| a.0 == b.0) {
        match of_run.iter().any(|(_, file)| is_damaged(file)) {
            true => groups.push(Vec::new()),
            false => groups.last_mut().expect("not empty").extend(of_run),
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

#[cfg(test)]
mod tests;
