use super::*;

#[test]
fn a_class_pays_by_its_share_of_hits() {
    let (shares, costs) = (HitShares::default(), ReadCosts::default());
    let pays = |class, pool_us| shares.pays(&costs, class, pool_us);
    assert!(pays(Class::Point, 1e6), "the file is not measured yet");
    costs.files.on_read(Class::Point, 100);
    assert!(pays(Class::Point, 90.0) && !pays(Class::Point, 110.0));
    for at in 0..1000 {
        shares.on_answer(Class::Point, at % 2 == 0);
    }
    assert!(
        pays(Class::Point, 45.0) && !pays(Class::Point, 55.0),
        "half of the answers hit"
    );
    (0..1000).for_each(|_| shares.on_answer(Class::Point, true));
    assert!(pays(Class::Point, 55.0), "it recovers");
    (0..1000).for_each(|_| shares.on_answer(Class::Point, false));
    assert!(!pays(Class::Point, 2.0));
    assert!(pays(Class::Scan, 1e6), "other classes do not notice");
    assert!(
        HitShares::default().pays(&costs, Class::Point, 90.0),
        "nor do other nodes"
    );
    assert_eq!((0..320).filter(|_| shares.tries(Class::Point)).count(), 10);
}

#[test]
fn a_read_of_many_bytes_is_compared_with_what_it_took_from_the_pool() {
    let (shares, costs) = (HitShares::default(), ReadCosts::default());
    let pays = |class| shares.pays(&costs, class, 50.0);
    costs.files.on_read(Class::Scan, 300);
    costs.files.on_read(Class::Point, 300);
    assert!(pays(Class::Scan));
    costs.pool.on_read(Class::Scan, 400);
    assert!(!pays(Class::Scan) && pays(Class::Point));
    // The file becomes slower.
    (0..20).for_each(|_| costs.files.on_read(Class::Scan, 600));
    assert!(pays(Class::Scan));
    // An answer is the least that a read takes.
    costs.pool.on_read(Class::BlobChunk, 1);
    costs.files.on_read(Class::BlobChunk, 40);
    assert!(!pays(Class::BlobChunk));
    // The share counts, too.
    (0..64).for_each(|_| shares.on_answer(Class::Scan, false));
    assert!(!pays(Class::Scan));
}

#[test]
fn tries_forget_what_a_read_took_until_one_shows_it() {
    let (shares, costs) = (HitShares::default(), ReadCosts::default());
    let pays = || shares.pays(&costs, Class::Scan, 50.0);
    costs.files.on_read(Class::Scan, 300);
    (0..100).for_each(|_| costs.pool.on_try(Class::Scan));
    costs.pool.on_read(Class::Scan, 2000);
    let tries_until_it_pays = || {
        let tries = (0..1000).take_while(|_| {
            costs.pool.on_try(Class::Scan);
            !pays()
        });
        tries.count()
    };
    let tries = tries_until_it_pays();
    assert!((40..80).contains(&tries), "{tries}");
    // It is as slow as it was: one read shows it for several tries.
    costs.pool.on_read(Class::Scan, 2000);
    assert!(!pays());
    let tries = tries_until_it_pays();
    assert!((5..20).contains(&tries), "{tries}");
    // It is fast now.
    for _ in 0..100 {
        costs.pool.on_read(Class::Scan, 100);
        assert!(pays());
    }
}

/// After a restart the pool may have everything.
#[test]
fn the_file_is_read_when_only_the_time_of_the_pool_is_known() {
    let (shares, costs) = (HitShares::default(), ReadCosts::default());
    let pays = || shares.pays(&costs, Class::Scan, 50.0);
    assert!(pays());
    costs.pool.on_read(Class::Scan, 0);
    assert!(!pays());
    costs.files.on_read(Class::Scan, 300);
    assert!(pays());
}
