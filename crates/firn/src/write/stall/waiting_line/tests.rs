use super::*;

#[test]
fn writers_leave_the_line_in_their_order() {
    let mut line = WaitingLine::default();
    let tickets: Vec<_> = (0..4).map(|_| line.join()).collect();
    line.leave(&tickets[1]);
    assert!(line.is_first(&tickets[0]) && line.len() == 3);
    for at in [0, 2, 3] {
        assert!(line.is_first(&tickets[at]));
        assert!(tickets[at].result().is_none());
        line.admit_first(Ok(()));
        assert!(tickets[at].result().is_some());
    }
    assert!(line.is_empty() && tickets[1].result().is_none());
    line.admit_first(Ok(()));
}
