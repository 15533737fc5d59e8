//! One switch for costly checks: on in debug builds, or with `FIRN_INVARIANTS=1` in the
//! environment.

use std::sync::LazyLock;

static ENABLED: LazyLock<bool> = LazyLock::new(|| {
    cfg!(debug_assertions) || std::env::var_os("FIRN_INVARIANTS").is_some_and(|v| v == "1")
});

/// Whether costly checks run.
pub fn enabled() -> bool {
    *ENABLED
}
