use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A number; the sum has the total and the smallest one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Number(u64);

#[derive(Debug, Clone, PartialEq)]
struct Sums {
    total: u64,
    least: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            total: 0,
            least: u64::MAX,
        }
    }
}

impl Summed for Number {
    type Sum = Sums;

    fn sum(&self) -> Sums {
        Sums {
            total: self.0,
            least: self.0,
        }
    }

    fn join(left: &mut Sums, right: &Sums) {
        left.total += right.total;
        left.least = left.least.min(right.least);
    }
}

fn sums(items: &[Number]) -> Sums {
    let mut sum = Sums::default();
    items.iter().for_each(|i| Number::join(&mut sum, &i.sum()));
    sum
}

fn compare(list: &SummedList<Number>, model: &[Number], rng: &mut StdRng) {
    assert_eq!(list.len(), model.len());
    assert_eq!(list.is_empty(), model.is_empty());
    assert_eq!(list.first(), model.first());
    assert_eq!(list.last(), model.last());
    assert!(list.iter().eq(model));
    assert!(list.iter().rev().eq(model.iter().rev()));
    assert_eq!(list.sum(), sums(model));
    let from = rng.random_range(0..=model.len());
    let to = rng.random_range(from..=model.len());
    let span = list.range(from..to);
    assert_eq!(span.to_vec(), model[from..to]);
    assert_eq!(span.sum(), sums(&model[from..to]));
    assert_eq!(list.get(from), model.get(from));
    let limit = rng.random_range(0..50);
    let small = model[from..].iter().position(|i| i.0 < limit);
    let found = list.position_from(from, |sum| sum.least < limit);
    assert_eq!(found, small.map(|at| from + at));
    let rank = rng.random_range(0..=list.sum().total);
    let mut total = 0;
    let exceeds = model.iter().position(|item| {
        total += item.0;
        total > rank
    });
    assert_eq!(list.select(rank, |sum| sum.total), exceeds);
    let rank = rng.random_range(0..=span.sum().total);
    let mut total = 0;
    let exceeds = model[from..to].iter().position(|item| {
        total += item.0;
        total > rank
    });
    assert_eq!(span.select(rank, |sum| sum.total), exceeds);
}

#[test]
fn random_changes_are_those_of_a_vector() {
    for seed in 0..20 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let len = rng.random_range(0..3000);
        let mut model: Vec<Number> = (0..len)
            .map(|_| Number(rng.random_range(0..1000)))
            .collect();
        let mut list: SummedList<Number> = model.iter().copied().collect();
        let shared = (list.clone(), model.clone());
        for step in 0..1500 {
            // Phases of growth and of shrinking, down to nothing.
            let grows = rng.random_range(0..10) < if step < 500 { 8 } else { 2 };
            let item = Number(rng.random_range(0..1000));
            if grows || model.is_empty() {
                let at = rng.random_range(0..=model.len());
                model.insert(at, item);
                list.insert(at, item);
            } else {
                for _ in 0..rng.random_range(1..9) {
                    if !model.is_empty() {
                        let at = rng.random_range(0..model.len());
                        assert_eq!(list.remove(at), model.remove(at));
                    }
                }
            }
            if !model.is_empty() {
                let at = rng.random_range(0..model.len());
                model[at] = item;
                list.replace(at, item);
            }
            if step % 50 == 0 {
                compare(&list, &model, rng);
            }
        }
        compare(&list, &model, rng);
        compare(&shared.0, &shared.1, rng);
    }
}

#[test]
fn sorted_items_are_found_by_bisection() {
    let list: SummedList<Number> = (0..5000).map(|n| Number(2 * n)).collect();
    for wanted in 0..10_002_u64 {
        let at = wanted.min(10_000).div_ceil(2) as usize;
        assert_eq!(list.partition_point(|item| item.0 < wanted), at);
        assert_eq!(list.first_not(|item| item.0 < wanted), list.get(at));
    }
}
