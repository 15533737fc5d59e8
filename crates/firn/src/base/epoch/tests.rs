use super::*;

#[test]
fn every_epoch_has_its_ids_and_all_fit() {
    for epoch in [0, 1, 77, EPOCH_MAX] {
        assert_eq!(epoch_of(first_id(epoch)), epoch);
        assert_eq!(epoch_of(end_of_ids(epoch) - 1), epoch);
        assert_eq!(epoch_of(end_of_ids(epoch)), epoch + 1);
    }
    // The last epoch ends exactly at 2^62.
    assert_eq!(end_of_ids(EPOCH_MAX), 1 << 62);
    assert_eq!(first_id(0), 0);
}

#[test]
fn seqnos_last_for_more_epochs_than_ids() {
    let mut last = 0;
    for _ in 0..=EPOCH_MAX {
        // The epoch uses as many seqnos as a jump skips.
        last = seqnos_after(last).unwrap() + SEQNO_JUMP - 1;
    }
    assert!(last < SEQNO_COMMITTED_MAX);
    let limit = SEQNO_COMMITTED_MAX - SEQNO_JUMP;
    assert_eq!(
        seqnos_after(limit - 1).unwrap(),
        SEQNO_COMMITTED_MAX - 1,
        "one commit fits"
    );
    for last in [limit, SEQNO_COMMITTED_MAX, Seqno::MAX] {
        let error = seqnos_after(last).unwrap_err();
        assert_eq!(*error.kind(), crate::base::ErrorKind::Unsupported);
    }
}

#[test]
fn a_database_id_is_shown_as_hexadecimal_digits() {
    let mut id = [0; 16];
    (id[0], id[15]) = (0xab, 1);
    let shown = DatabaseId(id).to_string();
    assert_eq!(shown, "ab000000000000000000000000000001");
}
