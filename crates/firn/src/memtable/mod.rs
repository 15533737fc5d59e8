//! Concurrent ordered map of the newest writes.
