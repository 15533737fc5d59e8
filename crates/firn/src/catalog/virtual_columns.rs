//! The host's virtual columns. The core keeps their values only in the entries of indexes, not in
//! rows.

/// Computes virtual columns of rows that the core changes by itself.
///
/// Rows that the host writes come with the values of these columns. The rows of a cascade do not:
/// the core reads them, and only the host knows the expressions.
pub trait VirtualColumns: Send + Sync {
    /// Computes the indexed virtual columns of `record`, a row of `table` (`database/table`), and
    /// writes them into `record`. Blob values that it computes stay in the host's memory until the
    /// next call. Returns false if a column has no value; the host has told its session why. Called
    /// on the thread of the session with context `host`.
    fn compute(&self, host: u64, table: &str, record: &mut [u8]) -> bool;
}
