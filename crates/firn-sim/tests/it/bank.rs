//! Transfers of money by threads, on a file system and with crashes.

use firn::env::{Env, PosixEnv};
use firn_sim::bank;
use std::sync::Arc;

#[test]
fn money_is_neither_made_nor_lost_by_threads_on_a_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let stats = bank::on_disk(&env, dir.path(), 1, 150).unwrap();
    assert_eq!(stats.transfers, 2 * 4 * 150);
    assert!(stats.counted > 0);
}

#[test]
fn money_is_neither_made_nor_lost_by_threads_in_a_crash() {
    for seed in 0..25 {
        bank::with_crashes(seed).unwrap();
    }
}
