//! A condition of the server that entries of a secondary index decide (index condition pushdown).
//!
//! A scan that reads rows without locks asks the condition before it reads the row of an entry, and
//! passes the entry over if the condition is false. So the rows of such entries are never read.
//!
//! Locking reads have no filter: the rows and gaps that a locking read locks must not depend on
//! where the condition is evaluated.

use crate::base::key::INDEX_ID_LEN;
use crate::base::{Error, ErrorKind, Result};
use crate::keycode::IndexDecodePlan;

/// Answer of a [`Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The row may match: read it.
    Match,
    /// The row does not match.
    Pass,
    /// The session was killed.
    Interrupted,
}

/// A condition over the columns of an index. It finds their values in the record buffer that it is
/// given. It must use neither the cursor nor its session: a function in the condition may read and
/// write through others.
pub type Condition = Box<dyn FnMut(&mut [u8]) -> Verdict + Send>;

/// Number of entries after which their share that matches says whether rows are worth prefetching.
const SAMPLE: u64 = 16;

/// A condition on the entries of one index.
pub(super) struct EntryFilter {
    condition: Condition,
    plan: IndexDecodePlan,
    asked: u64,
    matched: u64,
}

impl EntryFilter {
    /// A filter on the entries of an index, which `plan` decodes. The condition gets the columns
    /// that the plan decodes.
    pub(super) fn new(plan: IndexDecodePlan, condition: Condition) -> Self {
        Self {
            condition,
            plan,
            asked: 0,
            matched: 0,
        }
    }

    pub(super) fn into_plan(self) -> IndexDecodePlan {
        self.plan
    }

    /// Whether the row of the entry with this key and value may match. Decodes the columns of the
    /// entry into `record`.
    ///
    /// # Errors
    /// `Corruption`, without a file's name, if the bytes are no entry of the index. `Interrupted`
    /// if the session was killed.
    pub(super) fn admits(&mut self, key: &[u8], value: &[u8], record: &mut [u8]) -> Result<bool> {
        self.plan.decode(&key[INDEX_ID_LEN..], value, record)?;
        self.asked += 1;
        match (self.condition)(record) {
            Verdict::Match => {
                self.matched += 1;
                Ok(true)
            }
            Verdict::Pass => Ok(false),
            Verdict::Interrupted => Err(Error::new(
                ErrorKind::Interrupted,
                "while entries of an index were compared",
            )),
        }
    }

    /// Whether most rows are read. If not, most rows that a scan would prefetch are not needed.
    pub(super) fn admits_most(&self) -> bool {
        self.asked < SAMPLE || self.matched * 2 > self.asked
    }
}
