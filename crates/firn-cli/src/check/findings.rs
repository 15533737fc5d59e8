//! The findings of a check.

use firn::base::{Error, ErrorKind};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;

/// Largest number of findings that are listed; further ones are counted.
const LISTED_MAX: usize = 1000;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Stored bytes are not what they were, or contradict each other.
    Damage,
    /// This program cannot read a part, because a newer version wrote it, or it is encrypted, or in
    /// an object store that is not named or does not answer. Whether it is damaged is unknown.
    Unsupported,
    /// Nothing is lost, as far as the check can tell.
    Warning,
    /// Nothing is wrong.
    Note,
}

/// The worst kind of finding of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There are only warnings and notes, or no findings.
    Sound,
    /// This version cannot read something.
    Unsupported,
    /// Something is damaged.
    Damaged,
}

/// One result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    /// How bad the finding is.
    pub severity: Severity,
    /// The file or the table that has the problem, if the finding belongs to one.
    pub place: Option<String>,
    /// Offset in the file, bytes.
    pub offset: Option<u64>,
    /// The finding in words.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Damage => "damage",
            Severity::Unsupported => "unsupported",
            Severity::Warning => "warning",
            Severity::Note => "note",
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

/// Collects findings, each once.
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
    /// Adds an error of reading as damage or as something unsupported.
    pub fn error(&mut self, error: &Error) {
        if error.leaves_bytes_unknown() {
            let what = error.message().to_owned();
            return self.add(Severity::Unsupported, None, None, what);
        }
        let (place, offset) = match error.kind() {
            ErrorKind::Corruption { file, offset } if !file.is_empty() => {
                // Several checks read the same offset and meet the same damage, so report the
                // damage once.
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

    /// Adds damage of a file or table.
    pub fn damage(&mut self, place: &str, offset: Option<u64>, what: impl Into<String>) {
        self.add(
            Severity::Damage,
            Some(place.to_owned()),
            offset,
            what.into(),
        );
    }

    /// Adds something unusual that loses no data.
    pub fn warning(&mut self, place: &str, offset: Option<u64>, what: impl Into<String>) {
        self.add(
            Severity::Warning,
            Some(place.to_owned()),
            offset,
            what.into(),
        );
    }

    /// Adds something that is as it should be, but that the user may ask about.
    pub fn note(&mut self, what: impl Into<String>) {
        self.add(Severity::Note, None, None, what.into());
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

    /// The verdict that follows from all findings.
    pub fn verdict(&self) -> Verdict {
        match (self.damaged, self.unsupported) {
            (true, _) => Verdict::Damaged,
            (false, true) => Verdict::Unsupported,
            (false, false) => Verdict::Sound,
        }
    }

    /// The listed findings, and the number of further ones.
    pub fn finish(self) -> (Vec<Finding>, u64) {
        (self.listed, self.more)
    }
}
