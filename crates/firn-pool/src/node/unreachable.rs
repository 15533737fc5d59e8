//! Why a node cannot be reached: for reports and the log.

use super::Log;
use crate::node_list::NodeSpec;
use parking_lot::Mutex;
use std::io::{self, ErrorKind};

/// Shortest time between two messages, microseconds.
const LOG_PAUSE_US: u64 = 60_000_000;

/// The last reason.
#[derive(Default)]
pub(super) struct Unreachable(Mutex<Reasons>);

#[derive(Default)]
struct Reasons {
    /// Empty since the node has answered.
    last: String,
    /// The last one that was logged since then,
    logged: String,
    /// and when the next one may be.
    log_after_us: u64,
}

impl Unreachable {
    /// Keeps a reason, and logs it if it is not the one that was logged last.
    pub(super) fn note(&self, error: &io::Error, now_us: u64, node: &NodeSpec, log: &Log) {
        let text = error.to_string();
        let mut reasons = self.0.lock();
        // A name that is being resolved is no fault.
        let is_fault = error.kind() != ErrorKind::WouldBlock;
        let logs = is_fault && reasons.logged != text && now_us >= reasons.log_after_us;
        if logs {
            reasons.logged.clone_from(&text);
            reasons.log_after_us = now_us + LOG_PAUSE_US;
        }
        reasons.last.clone_from(&text);
        drop(reasons);
        if logs {
            let address = &node.address;
            log(&format!("pool node {address} cannot be reached: {text}"));
        }
    }

    /// The node has answered.
    pub(super) fn clear(&self) {
        let mut reasons = self.0.lock();
        reasons.last.clear();
        reasons.logged.clear();
    }

    /// The last reason, empty if the node has answered since.
    pub(super) fn reason(&self) -> String {
        self.0.lock().last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_list::parse_nodes;
    use std::sync::Arc;

    #[test]
    fn a_reason_is_logged_once_and_soon_after_another_one() {
        let node = parse_nodes("a:1").unwrap().remove(0);
        let logged = Arc::new(Mutex::new(Vec::new()));
        let sink = logged.clone();
        let log: Log = Arc::new(move |text: &str| sink.lock().push(text.to_owned()));
        let reasons = Unreachable::default();
        let note = |kind: ErrorKind, text: &str, now_us| {
            reasons.note(&io::Error::new(kind, text.to_owned()), now_us, &node, &log);
            assert_eq!(reasons.reason(), text);
            logged.lock().len()
        };
        assert_eq!(note(ErrorKind::WouldBlock, "resolving", 0), 0);
        assert_eq!(note(ErrorKind::Other, "refused", 1), 1);
        assert_eq!(note(ErrorKind::Other, "refused", 2 * LOG_PAUSE_US), 1);
        assert_eq!(note(ErrorKind::Other, "not trusted", 2 * LOG_PAUSE_US), 2);
        assert_eq!(note(ErrorKind::Other, "refused", 2 * LOG_PAUSE_US + 1), 2);
        assert_eq!(note(ErrorKind::Other, "refused", 4 * LOG_PAUSE_US), 3);
        reasons.clear();
        assert_eq!(reasons.reason(), "");
        assert_eq!(note(ErrorKind::Other, "refused", 6 * LOG_PAUSE_US), 4);
        let text = "pool node a:1 cannot be reached: not trusted";
        assert_eq!(logged.lock()[1], text);
    }
}
