//! A token bucket that hands out times, with a ledger. Pure functions of a clock.
//!
//! The rate *grants* bytes. Each ticket gets a *position* on the scale of granted bytes, behind the
//! tickets before it, and may go once the grant has come to its position. So a ticket knows its
//! time from the start, the rate may change at any moment, and no ticket moves.
//!
//! A statement asks before its first write, so its bytes are not known. It is charged the size that
//! is *typical* now. When the transaction ends, the ledger is settled:
//!
//! - It has committed less than it was charged, or nothing: the rest is granted at once.
//! - It has committed more, but no more than [`OUTLIER`] times the typical size: the difference is
//!   taken back from the grant, so all that wait go later. If thousands came when another size was
//!   typical, the rate holds for them, too.
//! - What it has committed beyond that is *owed*. Later tickets pay it by an extra charge, and
//!   unused rate pays it, too.
//!
//! So in the long run as many bytes are committed as the rate allows, whatever their sizes, and
//! nothing is charged twice. The extra charge doubles the charge at a second's worth of debt, and
//! doubles it again for each further [`DOUBLING_S`] seconds' worth. So a large transaction is paid
//! for by many small ones, at about half of their pace, and debt is bounded: it grows only with
//! the logarithm of how far commits exceed the typical size.
//!
//! Rejected: charging a commit when its bytes are known, without a charge before (until then
//! nothing spaces the writers, so all that wait for one moment pass at once, thousands of them);
//! the plain mean as the typical size (one transaction of 64 MiB makes each later one wait as if it
//! were large); no ledger (a limit on the charge then is a hole in the rate).

/// Age up to which an unused share of the rate may still be used, seconds. A writer wakes later
/// than it should, by the time of several commits, and on busy processors by milliseconds. If the
/// share of that time were lost, late wakeups would bound the rate.
pub const CREDIT_S: f64 = 0.02;

/// A ticket may go this much before its time, seconds, so that a timer that is a little early need
/// not be set again.
const EARLY_S: f64 = 0.0001;

/// Debt worth this many seconds of the rate doubles the extra charge.
const DOUBLING_S: f64 = 10.0;

/// Longest time by which one ticket's extra charge delays the next ticket, seconds.
const EXTRA_S_MAX: f64 = 1.0;

/// A charge before any commit is known, bytes.
const TYPICAL_FIRST: f64 = 1024.0;

/// The largest first charge of a limit, bytes. It comes from the mean of recent commits, which a
/// few large ones may dominate; thousands of writers would be charged for them before the first of
/// them has shown its size.
const TYPICAL_FIRST_MAX: f64 = 65_536.0;

/// Weight of a transaction in the typical size.
const WEIGHT: f64 = 1.0 / 32.0;

/// A transaction counts in the typical size with at most this multiple of it. So one large
/// transaction changes it little, and a series of them soon makes it theirs.
const OUTLIER: f64 = 8.0;

/// A refund speeds up the expected times at most tenfold: a timer that is too early costs more than
/// one that is too late, which others correct.
const DRIFT_MIN: f64 = -0.9;

/// A ticket that is not due sleeps at least this long, seconds, where only the refunds of others
/// would let it go sooner: the tickets before it must wake up and commit first. Without this bound,
/// a ticket that expects those refunds now sleeps for no time at all, again and again.
const REFUND_S: f64 = 0.002;

/// A ticket's place in the order, and its charge in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The ticket goes when so many bytes are granted.
    pub position: f64,
    /// The typical size, which the ticket's transaction gets back when it ends.
    pub charge: u64,
    /// The share of the debt that it pays.
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
    /// The last position that has gone. Those before it may go, also if the grant was taken back
    /// since.
    gone: f64,
    /// Committed bytes that no ticket was charged for.
    owed: f64,
    typical: f64,
    /// By which share of its charge a recent transaction has moved the grant back; below 0 if it
    /// was charged too much. The tickets that wait were charged like it, so they will, too.
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
    /// A limit begins, and nobody has a ticket. The bytes that were committed without a limit are
    /// not owed, and debt of an earlier limit is forgotten: the pressure counts all of them.
    /// `typical` is the mean size of recent commits, if it is known.
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

    /// Grants the bytes of the time up to `now_us`. Grants older than [`CREDIT_S`] that nobody has
    /// used pay the debt.
    pub fn advance(&mut self, now_us: u64) {
        let took_us = now_us.saturating_sub(self.at_us);
        self.at_us = self.at_us.max(now_us);
        self.grant(self.rate * took_us as f64 / 1e6);
    }

    /// Grants bytes that nobody will use.
    pub fn grant(&mut self, bytes: f64) {
        self.granted += bytes;
        let unused = self.granted - self.rate * CREDIT_S - self.tail;
        if unused > 0.0 {
            self.granted -= unused;
            self.owed = (self.owed - unused).max(0.0);
        }
    }

    /// The place of a new ticket. The caller has called [`Self::advance`].
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

    /// Whether the ticket at `position` may go. The caller has called [`Self::advance`].
    pub fn is_due(&self, position: f64) -> bool {
        position <= self.gone.max(self.granted + self.rate * EARLY_S)
    }

    /// The ticket at `position` goes.
    pub fn goes(&mut self, position: f64) {
        self.gone = self.gone.max(position);
    }

    /// When the ticket at `position` may probably go, at the present rate; `None` while nobody
    /// goes. `first` is the first position that waits. The tickets from there on will probably move
    /// the grant as recent ones have.
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

    /// Takes back the place of a ticket whose writer has given up. It pays no debt. The bytes of
    /// the place are granted by [`Self::grant`] when no earlier ticket is left.
    pub fn give_up(&mut self, place: Place) -> f64 {
        self.owed += place.extra;
        place.charge as f64 + place.extra
    }

    /// Bytes were committed.
    pub fn committed(&mut self, bytes: u64) {
        self.owed += bytes as f64;
    }

    /// A transaction ends whose `passes` tickets were charged `charged` bytes. Its `bytes` were
    /// [committed](Self::committed) before; 0 if it was rolled back.
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

    /// The bytes that a ticket is charged now, without the extra charge.
    pub fn typical(&self) -> f64 {
        self.typical
    }
}

#[cfg(test)]
mod tests;
