//! Flush and compaction: picker, jobs, drop rule, splitter.
//!
//! [`pick`] looks at a version and chooses the next [`Job`], [`run`] executes it and returns an
//! edit. Neither knows threads or transactions. The caller passes the live snapshots as numbers,
//! keeps the list of [`RunningJobs`] jobs, and applies the edits.

mod backlog;
mod flush_split;
mod drop_rule;
mod flush;
mod cache_handover;
mod job;
mod rate_limiter;
mod output;
mod picker;
mod running_jobs;
mod block_reuse;
mod level_targets;
mod splitter;

pub use backlog::{Backlog, SpaceTracker};
pub use flush_split::FlushSplits;
pub use drop_rule::{DropRule, DropReason, Retention, RetiredIndexes, Snapshots, DropDecision};
pub use flush::flush;
pub use cache_handover::CacheHandover;
pub use job::{JobStats, run_job};
pub use rate_limiter::RateLimiter;
pub use output::JobContext;
pub use picker::{PickerContext, RestGoal, changes_at_rest, l0_depth, pick};
pub use running_jobs::{JobInput, Job, JobKind, JobReason, RunningJobs};
pub use level_targets::LevelTargets;
pub use splitter::Splitter;

#[cfg(test)]
mod testing;
