//! Computes when each waiting writer may pass the stall gate. Nothing here reads a clock: the
//! caller passes the time.
//!
//! The gate is a token bucket: the rate *grants* bytes. The writer's *ticket* gets a *position* on
//! the scale of the bytes granted since the limit began, behind the tickets before it. A *limit* is
//! a period in which the gate is not open. The ticket may go once the granted bytes have come to
//! its position. So the time of a ticket is known from the start, the rate may change at any
//! moment, and no ticket moves.
//!
//! A statement passes the gate before its first write, when nobody knows how many bytes it will
//! write. So the ticket is charged the *typical* size of recent transactions. When the transaction
//! ends, this charge is settled:
//!
//! - If the transaction has committed less than the charge, or nothing, the rest of the charge is
//!   granted at once.
//! - If it has committed more than the charge, but at most [`OUTLIER`] times the typical size, the
//!   difference is taken back from the granted bytes, so all waiting tickets go later. So even if
//!   thousands of tickets were charged a typical size that is no longer right, the rate holds.
//! - The bytes that it has committed beyond [`OUTLIER`] times the typical size are *owed*. Later
//!   tickets pay this debt by an extra charge, and rate that nobody uses pays it, too.
//!
//! So in the long run as many bytes are committed as the rate allows, whatever the sizes of the
//! transactions, and nothing is charged twice. If the debt is worth one second of the rate, the
//! extra charge doubles a ticket's charge, and each further [`DOUBLING_S`] seconds double it again.
//! So many small transactions pay for a large one, at about half of their usual pace. The debt
//! grows only with the logarithm of how far commits exceed the typical size.
//!
//! Rejected: charging a commit when its bytes are known, and nothing before (until then nothing
//! spaces the writers, so thousands of writers that wait for one moment pass at once); the plain
//! mean as the typical size (one transaction of 64 MiB makes each later one wait as if it were
//! large); no debt, only a limit on the charge (large transactions then exceed the rate).

/// Granted bytes may stay unused for this many seconds. After that they reduce the bytes that are
/// owed for large commits; if nothing is owed, they are lost. The time must not be 0: a writer
/// wakes later than it should, by the time of several commits, and on busy processors by
/// milliseconds. If the bytes granted in that time were lost, late wakeups would bound the
/// throughput.
pub const CREDIT_S: f64 = 0.02;

/// A ticket may go this many seconds before its time, so that a timer that fires a little early
/// need not be set again.
const EARLY_S: f64 = 0.0001;

/// Seconds. The part of the debt that a ticket pays in addition to its own charge (the extra
/// charge) doubles about each time the debt grows by the bytes that the rate grants in this time.
const DOUBLING_S: f64 = 10.0;

/// A ticket is charged the typical size of a transaction and, while large commits have left a debt,
/// a part of that debt: the extra charge. This constant bounds the extra charge to the bytes that
/// the rate grants in so many seconds, so paying debt delays the next ticket by no more than that.
const EXTRA_S_MAX: f64 = 1.0;

/// The bytes that a ticket at the stall gate is charged for its transaction as long as no
/// transaction has shown how much it commits.
const TYPICAL_FIRST: f64 = 1024.0;

/// Upper bound in bytes of the typical size with which a limit begins. That size is the mean of
/// recent commits, in which a few large ones may dominate. Without the bound, thousands of writers
/// would be charged for large commits before the first of them has shown its own size.
const TYPICAL_FIRST_MAX: f64 = 65_536.0;

/// Weight of a transaction in the typical size.
const WEIGHT: f64 = 1.0 / 32.0;

/// When a transaction ends, the typical size counts it with at most this multiple of the present
/// typical size. So one large transaction changes the typical size little, and a series of large
/// ones soon determines it.
const OUTLIER: f64 = 8.0;

/// Lower bound of `drift`. When a transaction commits less than its ticket was charged, the rest is
/// granted again, so the tickets behind it may go earlier. Timers of waiting tickets count on that,
/// as `drift` tells; this bound makes them at most ten times as early. A timer that is too early
/// costs more than one that is too late: when other writers leave, they correct the late one.
const DRIFT_MIN: f64 = -0.9;

/// Shortest timer of a ticket whose position is not granted yet, in seconds, unless the position is
/// granted earlier. By `drift` the ticket may be expected to go now, because the tickets before it
/// will commit less than they were charged; but these must first wake up and commit. Without this
/// bound, the writer would sleep for no time at all, again and again.
const REFUND_S: f64 = 0.002;

/// A ticket's place in the order, and its charge in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The ticket goes when this many bytes are granted.
    pub position: f64,
    /// The typical size when the ticket was made. It is settled when the ticket's transaction ends.
    pub charge: u64,
    /// The bytes that the ticket is charged in addition, to pay a part of the bytes that large
    /// commits owe.
    extra: f64,
}

/// The token bucket; see the top of this file.
#[derive(Debug)]
pub struct Pace {
    /// Bytes a second; 0 while nobody goes.
    rate: f64,
    /// Granted bytes since [`Self::begin`], as of `at_us`.
    granted: f64,
    at_us: u64,
    /// Position of the next ticket.
    tail: f64,
    /// The largest position of a ticket whose writer has passed the gate. Tickets at smaller
    /// positions may pass too, even if bytes were taken back since then and `granted` is below
    /// their positions now.
    gone: f64,
    /// Committed bytes that no ticket was charged for.
    owed: f64,
    typical: f64,
    /// How recent transactions have moved the granted bytes back when they were settled, as a mean
    /// share of their charge. It is below 0 if their charges were too high. The waiting tickets got
    /// about the same charge, so they will probably move the granted bytes by the same share.
    drift: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: 0.0,
            granted: 0.0,
            at_us: 0,
            tail: 0.0,
            gone: 0.0,
            owed: 0.0,
            typical: TYPICAL_FIRST,
            drift: 0.0,
        }
    }
}

impl Pace {
    /// Begins a limit, a period in which the stall gate delays or stops writers. No ticket may
    /// exist. Later tickets need not pay for bytes that were committed while the gate was open, nor
    /// for bytes that are still owed from an earlier limit: the pressure already includes the
    /// effect of all these bytes. `typical` is the mean size of recent commits in bytes, if it is
    /// known.
    pub fn begin(&mut self, now_us: u64, typical: Option<f64>) {
        *self = Self {
            at_us: now_us,
            typical: typical
                .unwrap_or(self.typical)
                .clamp(1.0, TYPICAL_FIRST_MAX),
            ..Self::default()
        };
    }

    /// Changes the rate, bytes a second; 0 lets nobody go.
    pub fn set_rate(&mut self, now_us: u64, rate: u64) {
        self.advance(now_us);
        self.rate = rate as f64;
    }

    /// Grants the bytes for the time up to `now_us`. Bytes that were granted more than [`CREDIT_S`]
    /// seconds ago and that no ticket has used reduce the owed bytes (committed bytes for which no
    /// ticket was charged), or are lost if nothing is owed.
    pub fn advance(&mut self, now_us: u64) {
        let took_us = now_us.saturating_sub(self.at_us);
        self.at_us = self.at_us.max(now_us);
        self.grant(self.rate * took_us as f64 / 1e6);
    }

    /// Grants `bytes`. Bytes that no ticket uses may add up to what the rate grants in [`CREDIT_S`]
    /// seconds. Bytes beyond that pay the debt (see the top of this file), and what exceeds the
    /// debt is lost.
    pub fn grant(&mut self, bytes: f64) {
        self.granted += bytes;
        let unused = self.granted - self.rate * CREDIT_S - self.tail;
        if unused > 0.0 {
            self.granted -= unused;
            self.owed = (self.owed - unused).max(0.0);
        }
    }

    /// Makes a new ticket and returns its place. The caller must have called [`Self::advance`].
    pub fn place(&mut self) -> Place {
        let extra = self.extra();
        self.owed -= extra;
        let charge = self.typical as u64;
        let position = self.tail;
        self.tail += charge as f64 + extra;
        Place {
            position,
            charge,
            extra,
        }
    }

    fn extra(&self) -> f64 {
        if self.rate == 0.0 || self.owed == 0.0 {
            return 0.0;
        }
        let owed_s = self.owed / self.rate;
        let doublings = (owed_s.min(1.0) + owed_s / DOUBLING_S).min(64.0);
        let extra = self.typical * (doublings.exp2() - 1.0);
        extra.min(self.owed).min(self.rate * EXTRA_S_MAX)
    }

    /// Whether the ticket at `position` may go. The caller must have called [`Self::advance`].
    pub fn is_due(&self, position: f64) -> bool {
        position <= self.gone.max(self.granted + self.rate * EARLY_S)
    }

    /// The ticket at `position` goes.
    pub fn goes(&mut self, position: f64) {
        self.gone = self.gone.max(position);
    }

    /// Estimates the time at which the ticket at `position` may go, at the present rate; `None` if
    /// the rate is 0. `first` is the position of the first waiting ticket. The estimate assumes
    /// that the tickets between the two move the granted bytes as recent ones have (see `drift`).
    pub fn due_us(&self, first: f64, position: f64) -> Option<u64> {
        let left = match position <= self.gone {
            true => 0.0,
            false => {
                let left = position - self.granted;
                let sooner = left + (position - first) * self.drift;
                sooner.max(left.min(self.rate * REFUND_S))
            }
        };
        (self.rate > 0.0).then(|| self.at_us + (left.max(0.0) * 1e6 / self.rate).ceil() as u64)
    }

    /// Cancels a ticket whose writer has given up: the extra charge of the ticket is owed again.
    /// Returns the bytes that the ticket was charged, the extra charge included. The caller must
    /// pass them to [`Self::grant`] once no earlier ticket is left.
    pub fn give_up(&mut self, place: Place) -> f64 {
        self.owed += place.extra;
        place.charge as f64 + place.extra
    }

    /// Counts the bytes of a commit as owed, until the transaction is settled.
    pub fn committed(&mut self, bytes: u64) {
        self.owed += bytes as f64;
    }

    /// Settles a transaction that has ended: its `passes` tickets were charged `charged` bytes in
    /// total, and it has committed `bytes`, or 0 if it was rolled back. [`Self::committed`] must
    /// have counted these bytes before.
    pub fn settle(&mut self, charged: u64, passes: u32, bytes: u64) {
        let (charged, passes) = (charged as f64, f64::from(passes.max(1)));
        let usual = (bytes as f64).min(OUTLIER * self.typical * passes);
        let more = (usual - charged).max(0.0);
        self.granted -= more;
        self.owed -= charged + more;
        let mut less = 0.0;
        if self.owed < 0.0 {
            less = -std::mem::take(&mut self.owed);
            self.grant(less);
        }
        let drift = ((more - less) / charged.max(1.0)).clamp(-1.0, OUTLIER);
        self.drift = (self.drift + WEIGHT * (drift - self.drift)).max(DRIFT_MIN);
        // Further passes of one transaction tell nothing that is new.
        let size = usual / passes;
        self.typical = (self.typical + WEIGHT * (size - self.typical)).max(1.0);
    }

    /// Committed bytes that no ticket was charged for.
    pub fn owed(&self) -> f64 {
        self.owed
    }

    /// The bytes that a ticket made now is charged for its own transaction: the typical size. The
    /// part of the debt of large commits that it pays (the extra charge) does not count.
    pub fn typical(&self) -> f64 {
        self.typical
    }
}

#[cfg(test)]
mod tests;
