use super::*;
use crate::random::mixed;

const NAMES: u64 = 20_000;

fn seats(weights: &[u32]) -> Vec<Seat> {
    let seat = |(index, weight): (usize, &u32)| Seat {
        seed: mixed(index as u64 + 1),
        weight: *weight,
    };
    weights.iter().enumerate().map(seat).collect()
}

fn first(seats: &[Seat], name: &Name) -> u64 {
    let (index, _) = first_two(seats.iter().copied(), name).unwrap();
    seats[index].seed
}

fn names() -> impl Iterator<Item = Name> {
    (0..NAMES).map(|n| Name::of_block(n, 7, 0))
}

#[test]
fn a_change_of_the_nodes_moves_their_share_of_the_names() {
    for n in 2..=9 {
        let mut before = seats(&vec![1; n]);
        let after = before.clone();
        let gone = before.remove(n / 2);
        let mut moved = 0;
        for name in names() {
            let (old, new) = (first(&before, &name), first(&after, &name));
            if old != new {
                assert_eq!(new, gone.seed, "a name moves to the new node only");
                moved += 1;
            }
        }
        let expected = NAMES / n as u64;
        assert!(
            moved > expected * 9 / 10 && moved < expected * 11 / 10,
            "{n}: {moved}"
        );
    }
}

#[test]
fn nodes_get_names_by_their_weights() {
    let seats = seats(&[1, 2, 5]);
    for (index, share) in [(0, 1), (1, 2), (2, 5)] {
        let count = names()
            .filter(|name| first(&seats, name) == seats[index].seed)
            .count() as u64;
        let expected = NAMES * share / 8;
        assert!(
            count > expected * 9 / 10 && count < expected * 11 / 10,
            "{index}: {count}"
        );
    }
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    let seats = seats(&[3, 1, 4, 1, 5]);
    let mut turned = seats.clone();
    turned.reverse();
    for name in names().take(1000) {
        assert_eq!(first(&seats, &name), first(&turned, &name));
    }
}

#[test]
fn the_second_node_is_the_first_once_the_first_is_gone() {
    let seats = seats(&[1, 2, 3, 4]);
    for name in names().take(1000) {
        let (a, b) = first_two(seats.iter().copied(), &name).unwrap();
        let mut rest = seats.clone();
        rest.remove(a);
        assert_eq!(first(&rest, &name), seats[b.unwrap()].seed);
    }
    assert_eq!(first_two([].into_iter(), &Name::of_block(1, 1, 1)), None);
    assert_eq!(
        first_two(seats[..1].iter().copied(), &Name::of_block(1, 1, 1)),
        Some((0, None))
    );
}
