//! Flush and compaction: picker, jobs, drop rule, splitter.
//!
//! [`pick`] looks at a version and chooses the next [`Job`]. [`run_job`] executes the job and
//! returns an edit. Neither of them knows threads or transactions: the caller passes the live
//! snapshots as seqnos, keeps the list of running jobs ([`RunningJobs`]), and applies the edits.

mod backlog;
mod block_reuse;
mod cache_handover;
mod drop_rule;
mod flush;
mod flush_split;
mod held_files;
mod input_files;
mod job;
mod job_stats;
mod l0_overlap;
mod level_targets;
mod output_files;
mod picker;
mod rate_limiter;
mod running_jobs;
mod splitter;

pub use backlog::{Backlog, SpaceTracker};
pub use cache_handover::{CacheHandover, HandoverPace};
pub use drop_rule::{DropDecision, DropReason, DropRule, Retention, RetiredIndexes, Snapshots};
pub use flush::flush;
pub use flush_split::FlushSplits;
pub use job::run_job;
pub use job_stats::JobStats;
pub use level_targets::LevelTargets;
pub use output_files::JobContext;
pub use picker::{
    PickerContext, RestGoal, RestOrder, RestlessFiles, changes_at_rest, is_at_rest, pick,
    pick_within, restless_files,
};
pub use rate_limiter::RateLimiter;
pub use running_jobs::{ATTEMPTS_MAX, Job, JobInput, JobKind, JobReason, RunningJobs};
pub use splitter::{BoundarySearch, CrossedBoundaries, Splitter};

#[cfg(test)]
mod testing;
