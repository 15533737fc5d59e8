use super::*;

#[test]
fn a_class_pays_by_its_share_of_hits() {
    let (shares, files) = (HitShares::default(), FileTimes::default());
    let pays = |class, pool_us| shares.pays(&files, class, pool_us);
    assert!(pays(Class::Point, 1e6), "the file is not measured yet");
    files.on_file_read(Class::Point, 100);
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
        HitShares::default().pays(&files, Class::Point, 90.0),
        "nor do other nodes"
    );
    assert_eq!((0..320).filter(|_| shares.tries(Class::Point)).count(), 10);
}
