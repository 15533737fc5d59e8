//! Flush and compaction: picker, jobs, drop rule, splitter.
//!
//! [`pick`] looks at a version and chooses the next [`Job`], [`run`] executes it and returns an
//! edit. Neither knows threads or transactions. The caller passes the live snapshots as numbers,
//! keeps the list of [`RunningJobs`] jobs, and applies the edits.

mod backlog;
mod cuts;
mod drop_rule;
mod flush;
mod handover;
mod job;
mod limiter;
mod output;
mod picker;
mod plan;
mod reuse;
mod shape;
mod splitter;

pub use backlog::{Backlog, SpaceTracker};
pub use cuts::FlushSplits;
pub use drop_rule::{DropRule, DropReason, Retention, RetiredIndexes, Snapshots, DropDecision};
pub use flush::flush;
pub use handover::CacheHandover;
pub use job::{JobStats, run};
pub use limiter::RateLimiter;
pub use output::JobContext;
pub use picker::{PickerContext, RestGoal, changes_at_rest, l0_depth, pick};
pub use plan::{JobInput, Job, JobKind, JobReason, RunningJobs};
pub use shape::LevelTargets;
pub use splitter::Splitter;

#[cfg(test)]
mod testing;
