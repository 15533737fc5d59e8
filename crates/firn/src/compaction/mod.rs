//! Flush and compaction: picker, jobs, drop rule, splitter.
//!
//! [`pick`] looks at a version and chooses the next [`Job`], [`run`] executes it and returns an
//! edit. Neither knows threads or transactions. The caller passes the live snapshots as numbers,
//! keeps the list of [`Running`] jobs, and applies the edits.

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

pub use backlog::{Backlog, Extra};
pub use cuts::Cuts;
pub use drop_rule::{DropRule, Reason, Retention, Retired, Snapshots, Verdict};
pub use flush::flush;
pub use handover::Handover;
pub use job::{JobStats, run};
pub use limiter::IoLimiter;
pub use output::JobContext;
pub use picker::{Picking, Rest, changes_at_rest, l0_depth, pick};
pub use plan::{Input, Job, JobKind, JobReason, Running};
pub use shape::Shape;
pub use splitter::Splitter;

#[cfg(test)]
mod testing;
