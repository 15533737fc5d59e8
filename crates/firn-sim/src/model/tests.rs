use super::*;

fn value(byte: u8) -> OwnedValue {
    OwnedValue::new(vec![byte].into(), 1)
}

fn commit(key: &[u8], byte: Option<u8>) -> Event {
    Event::Commit(
        [(key.to_vec(), byte.map(value))].into(),
        vec![(9, 5.into())],
    )
}

fn all(history: &Model, at: Moment) -> Vec<(Vec<u8>, OwnedValue)> {
    let range = history.range(b"", b"z", at);
    range.map(|(k, v)| (k.to_vec(), v.clone())).collect()
}

#[test]
fn every_moment_has_its_state() {
    let mut history = Model::default();
    history.record(commit(b"a", Some(1)));
    history.record(Event::Prepare(
        b"x".to_vec(),
        [(b"b".to_vec(), Some(value(2)))].into(),
        vec![],
    ));
    history.record(commit(b"a", None));
    history.record(Event::CommitPrepared(b"x".to_vec()));
    assert_eq!(all(&history, 0), []);
    assert_eq!(all(&history, 2), [(b"a".to_vec(), value(1))]);
    assert_eq!(all(&history, 3), []);
    assert_eq!(all(&history, 4), [(b"b".to_vec(), value(2))]);
    assert_eq!(history.side_at(2).prepared.len(), 1);
    assert_eq!(history.side_at(4).prepared.len(), 0);
    assert_eq!(history.side().counters[&9], 5.into());
    assert_eq!(history.last_write(), 4);
}

#[test]
fn what_a_recovery_lost_never_was() {
    let mut history = Model::default();
    history.record(commit(b"a", Some(1)));
    history.record(commit(b"a", Some(2)));
    history.record(Event::Create("t".into(), vec![1]));
    history.recovered(1);
    assert_eq!((history.now(), history.durable()), (1, 1));
    assert_eq!(all(&history, 9), [(b"a".to_vec(), value(1))]);
    assert!(history.side().tables.is_empty());
}

#[test]
fn forgetting_changes_no_later_state() {
    let mut history = Model::default();
    for i in 0..20 {
        history.record(commit(&[i % 3], (i % 4 != 0).then_some(i)));
    }
    history.record(Event::Create("t".into(), vec![1]));
    history.record(Event::Drop("t".into()));
    history.acknowledge(22);
    let before: Vec<_> = (10..=22).map(|at| all(&history, at)).collect();
    history.forget_before(10);
    let after: Vec<_> = (10..=22).map(|at| all(&history, at)).collect();
    assert_eq!(before, after);
    assert_eq!(history.side_at(21).tables.len(), 1);
    assert_eq!(history.now(), 22);
}
