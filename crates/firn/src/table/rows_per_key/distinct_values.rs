//! Counts the distinct values of the key prefixes of an index: from the sketches of its files, and
//! by walking over its entries in memtables.

use super::run_sample::{RunSample, puts, sample_runs, skip_unreadable};
use crate::base::key::{SEQNO_MAX, index_prefix};
use crate::base::prefix_extractor::PrefixExtractor;
use crate::base::sketch::{PrefixSketcher, Sketch};
use crate::base::{IndexId, InternalIterator, Result};
use crate::read::SuperVersion;
use crate::version::FileSpan;
use std::sync::Arc;

/// Number of files of an index whose sketches are read at most, since a statement waits for them.
const FILES_MAX: usize = 64;

/// Largest number of memtable entries that an estimate walks over.
const WALK_MAX: u64 = 32 << 10;
/// Memtables have no sketches, so an estimate walks over their entries. If they have more than
/// [`WALK_MAX`] entries, the estimate uses the sketches of the files alone, provided that the files
/// have at least this many times as many entries as the memtables. Otherwise it does not use
/// sketches.
const MEMTABLE_SHARE_MIN: u64 = 16;

/// Steps that narrow the number of values in several runs down; each halves the error.
const BISECTIONS: usize = 30;

/// Estimated number of distinct values of each prefix in files and memtables. `None` if sketches
/// are missing: an older version wrote the files, or memtables have too many entries, or no file
/// can be read.
///
/// # Errors
/// `NoDescriptor` if no file can be opened for the moment.
pub(super) fn distinct_values(
    super_version: &SuperVersion,
    index: IndexId,
    prefix_extractor: &Arc<dyn PrefixExtractor>,
) -> Result<Option<Vec<f64>>> {
    let runs = super_version.runs().map(|run| run.of_index(index));
    let runs: Vec<FileSpan<'_>> = runs.filter(|files| !files.is_empty()).collect();
    let in_files: u64 = runs.iter().map(|files| puts(*files, index)).sum();
    let memtables = super_version.memtables();
    let in_memtables = memtables.map(|memtable| memtable.index_counts(index).entries);
    let in_memtables: u64 = in_memtables.sum();
    let walked = if in_memtables <= WALK_MAX {
        walk_memtables(super_version, index, prefix_extractor)?
    } else if in_memtables <= in_files / MEMTABLE_SHARE_MIN {
        Some(vec![Sketch::default(); prefix_extractor.prefixes()])
    } else {
        None
    };
    let Some(walked) = walked else {
        return Ok(None);
    };
    if runs.iter().map(FileSpan::len).sum::<usize>() <= FILES_MAX {
        let all = with_files(walked, &runs, index)?;
        return Ok(all.map(|all| all.iter().map(Sketch::estimate).collect()));
    }
    let Some(mut parts) = sample_runs(&runs, index, prefix_extractor, FILES_MAX)? else {
        return Ok(None);
    };
    parts.push(RunSample {
        entries: in_memtables,
        values: walked.iter().map(Sketch::estimate).collect(),
    });
    let prefixes = 0..prefix_extractor.prefixes();
    let of_prefix = |prefix: usize| {
        let parts = parts.iter();
        let parts: Vec<(f64, f64)> = parts
            .map(|part| (part.entries as f64, part.values[prefix]))
            .collect();
        values_of_all(&parts)
    };
    Ok(Some(prefixes.map(of_prefix).collect()))
}

/// Merges the sketches of the memtables' entries. `None` if a key does not fit the key layout.
fn walk_memtables(
    super_version: &SuperVersion,
    index: IndexId,
    prefix_extractor: &Arc<dyn PrefixExtractor>,
) -> Result<Option<Vec<Sketch>>> {
    let mut all = vec![Sketch::default(); prefix_extractor.prefixes()];
    let prefix = index_prefix(index);
    for memtable in super_version.memtables() {
        if memtable.index_counts(index).entries == 0 {
            continue;
        }
        let mut sketcher = PrefixSketcher::new(Arc::clone(prefix_extractor));
        let mut entries = memtable.iter();
        let mut on = entries.seek(&prefix, SEQNO_MAX)?;
        while on && entries.key().user_key.starts_with(&prefix) {
            if entries.key().kind.is_put() {
                sketcher.add(entries.key().user_key);
            }
            on = entries.next()?;
        }
        let Some(found) = sketcher.finish() else {
            return Ok(None);
        };
        merge(&mut all, &found);
    }
    Ok(Some(all))
}

/// Merges the sketches of all files into `all`. `None` if a file has no sketches, or none of them
/// can be read.
fn with_files(
    mut all: Vec<Sketch>,
    runs: &[FileSpan<'_>],
    index: IndexId,
) -> Result<Option<Vec<Sketch>>> {
    let (mut read, mut unreadable) = (0, 0);
    for file in runs.iter().flat_map(|files| *files) {
        if file.index(index).is_none_or(|s| s.entries == s.deletes) {
            continue;
        }
        match skip_unreadable(file.sketches(index))? {
            None => unreadable += 1,
            Some(Some(found)) if found.len() == all.len() => {
                merge(&mut all, &found);
                read += 1;
            }
            Some(_) => return Ok(None),
        }
    }
    Ok((read > 0 || unreadable == 0).then_some(all))
}

fn merge(all: &mut [Sketch], more: &[Sketch]) {
    all.iter_mut()
        .zip(more)
        .for_each(|(all, one)| all.merge(one));
}

/// Estimated number of distinct values in several runs together. `runs` has the numbers of entries
/// and of distinct values of each; two runs may have the same values.
///
/// If each run has values of its own, the result is their sum. If each has them all, it is the
/// largest number. The entries decide between the two: the result is the number of values for
/// which the runs would have the given numbers on average if the entries of each value were
/// distributed over the runs by chance. So values with one entry each are added up, and values with
/// many entries are expected in each run. The result is too low if values have many entries, all in
/// one run; but it is never below the largest number of one run, and most entries are in one run.
fn values_of_all(runs: &[(f64, f64)]) -> f64 {
    let all: f64 = runs.iter().map(|(entries, _)| entries).sum();
    let sum: f64 = runs.iter().map(|(_, values)| values).sum();
    let most = runs.iter().map(|(_, values)| *values).fold(0.0, f64::max);
    let expected = |values: f64| -> f64 {
        let of_run = |(entries, _): &(f64, f64)| {
            let misses = (1.0 - entries / all).powf(all / values);
            values * (1.0 - misses)
        };
        runs.iter().map(of_run).sum()
    };
    // The function is ascending.
    let (mut low, mut high) = (most, sum.min(all).max(most));
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        if expected(middle) < sum {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests;
