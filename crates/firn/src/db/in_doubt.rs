//! Settles transactions that the host's server prepared in an earlier server run.
//!
//! The server numbers its transactions anew at each start. After a crash it decides by the binary
//! log of its last server run. If that run was without the engine, its binary log never knew the
//! engine's prepared transactions: the server would roll them back, or take one of its own numbers
//! for theirs. So the engine reads the binary log of the server run that prepared them, before the
//! server asks for them.
//! Example: run 1 prepares numbers 1 to 3, writes 1 and 3 to `bin.000001` and is killed. Run 2 is
//! without the engine, writes its own number 2 to `bin.000002` and is killed, too. At the next
//! start with the engine, the server would commit 2 and roll back 1 and 3. `bin.000001` decides
//! instead: 1 and 3 commit, 2 rolls back.

use super::Db;
use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result};
use crate::binlog::{ServerRun, ServerRunFiles, same_file, server_xid};
use crate::env::ReadClass;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// State of the host's server when it opens the engine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerStart {
    /// Whether the server is starting, and will ask the engine for its prepared transactions. If
    /// false, the server is running already, the engine was installed later, and the server does
    /// not ask.
    pub asks: bool,
    /// Whether the administrator told the server to commit or to roll back everything prepared
    /// (`--tc-heuristic-recover`).
    pub server_decides_all: bool,
    /// The index file of the server's binary log, if the server keeps a binary log. If the server
    /// was killed while it wrote the last file named in the index, that file decides which
    /// transactions the server commits.
    pub binlog_index: Option<PathBuf>,
}

/// A transaction that the binary log of its server run does not decide.
struct Undecided {
    xid: u64,
    why: Error,
}

impl Db {
    /// Commits or rolls back the transactions that earlier server runs prepared, as the binary logs
    /// of those runs say. Leaves prepared two kinds of transactions: those that the server itself
    /// decides at this start, and those with a client's xid. Call this before anything is prepared.
    ///
    /// # Errors
    /// `NotFound` if a needed binary log is missing or unreadable: the transactions that it would
    /// decide stay prepared. `Poisoned`, `NoSpace` or `Io` of the engine's log.
    pub fn resolve_in_doubt(&self, start: &ServerStart) -> Result<()> {
        let mut by_run: BTreeMap<Arc<ServerRun>, BTreeMap<u64, Vec<u8>>> = BTreeMap::new();
        for (image, run) in self.cx.prepared.runs() {
            if let Some(xid) = server_xid(&image) {
                by_run.entry(run).or_default().insert(xid, image);
            }
        }
        let mut open = Vec::new();
        for (run, xids) in &by_run {
            match self.committed(run, xids, start) {
                Ok(Some(committed)) => self.end_prepared(xids, &committed)?,
                Ok(None) => {}
                Err(why) => open.extend(xids.keys().map(|xid| Undecided {
                    xid: *xid,
                    why: why.clone(),
                })),
            }
        }
        self.left_open(&open, start)
    }

    /// Returns those of `xids` that their server run committed; `None` if the server decides about
    /// them.
    fn committed(
        &self,
        run: &ServerRun,
        xids: &BTreeMap<u64, Vec<u8>>,
        start: &ServerStart,
    ) -> Result<Option<BTreeSet<u64>>> {
        let env = &*self.env;
        let file = match run {
            ServerRun::NoBinlog => {
                let server_decides =
                    start.asks && (start.server_decides_all || start.binlog_index.is_none());
                // Without a binary log, the server acknowledges a commit only after the engine's
                // log has it. So a transaction that is still prepared was never acknowledged and
                // may be rolled back.
                return Ok((!server_decides).then(BTreeSet::new));
            }
            ServerRun::Binlog(file) => file,
        };
        let last = match &start.binlog_index {
            Some(index) => self.last_of(index)?,
            None => None,
        };
        let run = ServerRunFiles::find(env, file, last.as_deref().and_then(Path::parent))?;
        if start.asks
            && run.was_killed()
            && let Some(last) = last
            && same_file(env, run.last(), &last)?
        {
            return Ok(None);
        }
        let numbers = xids.keys().copied().collect();
        run.committed(env, &numbers).map(Some)
    }

    /// The last file named in an index file of the server's binary log.
    fn last_of(&self, index: &Path) -> Result<Option<PathBuf>> {
        if !self.env.exists(index)? {
            return Ok(None);
        }
        let file = self.env.open(index)?;
        let mut bytes = vec![0; file.size()? as usize];
        file.read_exact_at(ReadClass::Log, 0, &mut bytes)?;
        let last = bytes.rsplit(|b| *b == b'\n').find(|name| !name.is_empty());
        Ok(last.map(|name| PathBuf::from(OsStr::from_bytes(name))))
    }

    fn end_prepared(&self, xids: &BTreeMap<u64, Vec<u8>>, committed: &BTreeSet<u64>) -> Result<()> {
        for (xid, image) in xids {
            let ended = match committed.contains(xid) {
                true => self.commit_xid(image),
                false => self.rollback_xid(image),
            };
            match ended {
                // If the transaction is no longer prepared after `NoSpace`, it has ended and only
                // its outcome could not be logged: the next open decides it again. If it is still
                // prepared, return the error, which ends the open: otherwise the server, which does
                // not know the transaction, would decide it.
                Err(full)
                    if *full.kind() == ErrorKind::NoSpace
                        && !self.prepared_xids().contains(image) =>
                {
                    self.work
                        .options
                        .listener
                        .log(Severity::Warning, &full.to_string());
                }
                ended => drop(ended?),
            }
        }
        let message = format!(
            "{} transactions that an earlier run of the server prepared: {} committed, {} rolled back, as its \
             binary log has it",
            xids.len(),
            committed.len(),
            xids.len() - committed.len()
        );
        self.work.options.listener.log(Severity::Note, &message);
        Ok(())
    }

    fn left_open(&self, open: &[Undecided], start: &ServerStart) -> Result<()> {
        let Some(first) = open.first() else {
            return Ok(());
        };
        let numbers: Vec<String> = open.iter().take(20).map(|o| o.xid.to_string()).collect();
        let more = if open.len() > numbers.len() {
            ", …"
        } else {
            ""
        };
        let what = format!(
            "{} transactions that an earlier run of the server prepared are in doubt (numbers {}{more}), since its \
             binary log cannot be asked: {}",
            open.len(),
            numbers.join(", "),
            first.why
        );
        if start.asks && start.server_decides_all {
            let message = format!("{what}. The server decides them as --tc-heuristic-recover says");
            self.work.options.listener.log(Severity::Warning, &message);
            return Ok(());
        }
        let remedy = match first.why.kind() {
            ErrorKind::Unsupported => "The engine has no other way to know: start",
            _ => {
                "Put the binary log back to where it was and start again; only if it is gone, start"
            }
        };
        let message = format!(
            "{what}. Nothing is lost yet. {remedy} once with --tc-heuristic-recover=COMMIT or ROLLBACK, which decides \
             all of them alike"
        );
        Err(Error::new(ErrorKind::NotFound, message))
    }

    /// Tells the log to which server run the transactions belong that are prepared from now on: to
    /// the one that writes `binlog`, or with `None` to one without a binary log.
    ///
    /// # Errors
    /// Those of reading the file: the log then continues to name the previous run.
    pub fn note_server_run(&self, binlog: Option<&Path>) -> Result<()> {
        let run = match binlog {
            None => ServerRun::NoBinlog,
            Some(path) => ServerRun::Binlog(crate::binlog::BinlogFile::read(&*self.env, path)?),
        };
        self.cx.pipeline.set_server_run(Some(Arc::new(run)));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
