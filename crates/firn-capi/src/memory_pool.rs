//! The memory pool: its switch, its nodes, and what it reports.

use crate::database::firn_db;
use crate::error::{firn_status, guard};
use crate::pointers::{c_str, name};
use firn::base::Error;
use firn_pool::{Class, NodeStats, parse_nodes};
use std::ffi::{CString, c_char, c_void};

/// Checks a list of nodes of the memory pool, as [`firn_set_pool_nodes`] does, and changes nothing.
///
/// # Safety
/// `nodes` must be NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_check_pool_nodes(nodes: *const c_char) -> firn_status {
    guard(|| {
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let nodes = unsafe { c_str(nodes) }?.unwrap_or_default();
        parse_nodes(nodes).map_err(Error::invalid)?;
        Ok(())
    })
}

/// Sets the nodes of the memory pool: `host:port`, `[IPv6]:port`, one of these behind `tls:`, or
/// `unix:/path`, apart by commas, each with `*weight` behind it if that is not 1. Empty for none.
///
/// # Safety
/// `db` must be open; `nodes` must be a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_set_pool_nodes(
    db: *const firn_db,
    nodes: *const c_char,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, nodes) = unsafe { (firn_db::get(db)?, name(nodes)?) };
        Ok(db.set_pool_nodes(nodes)?)
    })
}

/// Switches the memory pool on or off.
///
/// # Safety
/// `db` must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_set_pool_enabled(db: *const firn_db, enabled: bool) -> firn_status {
    // SAFETY: the handle is live: the host frees a handle only after the last call with that
    // handle.
    guard(|| Ok(unsafe { firn_db::get(db) }?.set_pool_enabled(enabled)?))
}

/// Number of classes of reads that use the memory pool.
pub const FIRN_POOL_CLASSES: usize = 6;

/// Figures of the blocks of one class on a node of the memory pool.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct firn_pool_class_info {
    /// Blocks that the node was asked for.
    pub gets: u64,
    /// Blocks that it had.
    pub hits: u64,
}

/// A node of the memory pool.
#[repr(C)]
pub struct firn_pool_node_info {
    /// Address as in the list of nodes.
    pub address: *const c_char,
    /// Weight in the list.
    pub weight: u64,
    /// Whether the pool is on.
    pub enabled: bool,
    /// Whether the node is not asked for now, because it does not answer.
    pub breaker_open: bool,
    /// How often that has begun.
    pub breaker_opened: u64,
    /// Why the last connect has failed; empty if it has not.
    pub connect_error: *const c_char,
    /// Bytes that the node uses for values, when it was last asked.
    pub used_bytes: u64,
    /// Bytes that it may use.
    pub limit_bytes: u64,
    /// Values that it has, also of other servers.
    pub items: u64,
    /// Values that it has evicted.
    pub evictions: u64,
    /// Mean time of an answer, microseconds.
    pub latency_us: u64,
    /// Time that half of the answers did not exceed, microseconds; at most twice too large. 0
    /// without answers.
    pub latency_us_p50: u64,
    /// Time that 99 % of the answers did not exceed, microseconds.
    pub latency_us_p99: u64,
    /// Blocks that the node was asked for.
    pub gets: u64,
    /// Blocks that it had.
    pub hits: u64,
    /// Stored bytes of the hits.
    pub hit_bytes: u64,
    /// Blocks that it did not have.
    pub misses: u64,
    /// Blocks whose answer missed the deadline.
    pub late: u64,
    /// Blocks whose connection broke.
    pub broken: u64,
    /// Blocks that were not what was put, and were deleted.
    pub wrong: u64,
    /// Blocks that were put.
    pub puts: u64,
    /// Stored bytes of the puts.
    pub put_bytes: u64,
    /// Puts that were given up.
    pub dropped_puts: u64,
    /// By class: index, point, short range, batched keys, scan, blob chunk.
    pub classes: [firn_pool_class_info; FIRN_POOL_CLASSES],
}

/// The upper end of the bucket in which this share of the answers has ended, microseconds.
fn percentile(counts: &[u64], percent: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let rank = (all * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let bucket = counts.iter().position(|count| {
        seen += count;
        seen >= rank
    });
    bucket.map_or(0, |bucket| 2 << bucket)
}

fn node_info(
    node: &NodeStats,
    (address, connect_error): (&CString, &CString),
    enabled: bool,
) -> firn_pool_node_info {
    let mut info = firn_pool_node_info {
        address: address.as_ptr(),
        connect_error: connect_error.as_ptr(),
        weight: u64::from(node.weight),
        enabled,
        breaker_open: node.breaker_open,
        breaker_opened: node.breaker_opened,
        used_bytes: node.used_bytes,
        limit_bytes: node.limit_bytes,
        items: node.items,
        evictions: node.evictions,
        latency_us: node.latency_us.round() as u64,
        latency_us_p50: percentile(&node.latency_counts, 50),
        latency_us_p99: percentile(&node.latency_counts, 99),
        gets: 0,
        hits: 0,
        hit_bytes: 0,
        misses: 0,
        late: 0,
        broken: 0,
        wrong: 0,
        puts: 0,
        put_bytes: 0,
        dropped_puts: 0,
        classes: [firn_pool_class_info::default(); FIRN_POOL_CLASSES],
    };
    for (class, stats) in Class::ALL.into_iter().zip(&node.classes) {
        info.gets += stats.gets;
        info.hits += stats.hits;
        info.hit_bytes += stats.hit_bytes;
        info.misses += stats.misses;
        info.late += stats.late;
        info.broken += stats.broken;
        info.wrong += stats.lying;
        info.puts += stats.puts;
        info.put_bytes += stats.put_bytes;
        info.dropped_puts += stats.dropped_puts;
        if let Some(of) = info.classes.get_mut(class.index()) {
            (of.gets, of.hits) = (stats.gets, stats.hits);
        }
    }
    info
}

/// Calls `each` for every node of the memory pool.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_pool_nodes(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_pool_node_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        let Some(stats) = db.pool_stats() else {
            return Ok(());
        };
        for node in &stats.nodes {
            let text = |text: &str| CString::new(text).unwrap_or_default();
            let (address, error) = (text(&node.address), text(&node.connect_error));
            let info = node_info(node, (&address, &error), db.is_pool_enabled());
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ends_of_buckets() {
        assert_eq!(percentile(&[0; 16], 50), 0);
        // 10 answers of 2 to 3 µs, one of 32 to 63 µs.
        let mut counts = [0; 16];
        (counts[1], counts[5]) = (10, 1);
        assert_eq!((percentile(&counts, 50), percentile(&counts, 99)), (4, 64));
    }
}
