//! The findings of a check.

use firn::base::{Error, ErrorKind};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;

/// Findings listed at most; the rest is counted.
const LISTED_MAX: usize = 1000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Stored bytes are not what they were, or contradict each other.
    Damage,
    /// This version cannot read it, because it is of a newer one, or encrypted. Whether it is sound
    /// is unknown.
    Unsupported,
    /// Nothing is lost by it, as far as can be told.
    Warning,
}

/// The worst of what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing but warnings.
    Sound,
    /// This version cannot read something.
    Unsupported,
    /// Something is damaged.
    Damaged,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, or the table, if it is about one.
    pub place: Option<String>,
    /// Where in the file.
    pub offset: Option<u64>,
    /// In words.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Damage => "damage",
            Severity::Unsupported => "unsupported",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: ")?;
        if let Some(place) = &self.place {
            write!(f, "{place}")?;
            if let Some(offset) = self.offset {
                write!(f, " at {offset}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.what)
    }
}

/// Collects them, each once.
#[derive(Default)]
pub struct Findings {
    listed: Vec<Finding>,
    seen: HashSet<(Option<String>, Option<u64>, Severity, String)>,
    places: HashSet<(String, u64)>,
    more: u64,
    damaged: bool,
    unsupported: bool,
}

impl Findings {
    /// Adds an error of reading: damage, or another cause.
    pub fn error(&mut self, error: &Error) {
        if error.is_unsupported() {
            let what = error.message().to_owned();
            return self.add(Severity::Unsupported, None, None, what);
        }
        let (place, offset) = match error.kind() {
            ErrorKind::Corruption { file, offset } if !file.is_empty() => {
                // Every reader of the same offset meets the same damage: report it once.
                if !self.places.insert((file.clone(), *offset)) {
                    return;
                }
                (Some(file.clone()), Some(*offset))
            }
            _ => (None, None),
        };
        let what = match error.is_corruption() {
            true => error.message().to_owned(),
            false => error.to_string(),
        };
        self.add(Severity::Damage, place, offset, what);
    }

    /// Damage of a file or table, in words.
    pub fn damage(&mut self, place: &str, offset: Option<u64>, what: impl Into<String>) {
        self.add(
            Severity::Damage,
            Some(place.to_owned()),
            offset,
            what.into(),
        );
    }

    /// Adds an oddity that loses no data.
    pub fn warning(&mut self, place: &str, offset: Option<u64>, what: impl Into<String>) {
        self.add(
            Severity::Warning,
            Some(place.to_owned()),
            offset,
            what.into(),
        );
    }

    fn add(
        &mut self,
        severity: Severity,
        place: Option<String>,
        offset: Option<u64>,
        what: String,
    ) {
        self.damaged |= severity == Severity::Damage;
        self.unsupported |= severity == Severity::Unsupported;
        if !self
            .seen
            .insert((place.clone(), offset, severity, what.clone()))
        {
            return;
        }
        if self.listed.len() == LISTED_MAX {
            self.more += 1;
            return;
        }
        self.listed.push(Finding {
            severity,
            place,
            offset,
            what,
        });
    }

    /// Whether everything could be read, and is as it should be.
    pub fn verdict(&self) -> Verdict {
        match (self.damaged, self.unsupported) {
            (true, _) => Verdict::Damaged,
            (false, true) => Verdict::Unsupported,
            (false, false) => Verdict::Sound,
        }
    }

    /// The findings, and how many more there are.
    pub fn finish(self) -> (Vec<Finding>, u64) {
        (self.listed, self.more)
    }
}
