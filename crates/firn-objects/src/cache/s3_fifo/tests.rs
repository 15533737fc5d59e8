use super::*;
use std::collections::HashMap;

/// A cache of `size` chunks; `touches` are the owner's.
struct Model {
    queue: S3Fifo<()>,
    touches: HashMap<Key, u32>,
    size: usize,
}

impl Model {
    fn new(size: usize) -> Self {
        Self {
            queue: S3Fifo::default(),
            touches: HashMap::new(),
            size,
        }
    }

    /// Returns whether it was there.
    fn read(&mut self, key: Key) -> bool {
        if let Some(touches) = self.touches.get_mut(&key) {
            *touches = (*touches + 1).min(3);
            return true;
        }
        if self.touches.len() == self.size {
            let touches = &mut self.touches;
            let popped = self.queue.pop(|key, ()| match touches.get_mut(key) {
                None => Fate::Gone,
                Some(0) => Fate::Leaves,
                Some(touches) => {
                    *touches -= 1;
                    Fate::Stays
                }
            });
            self.touches.remove(&popped.unwrap().0).unwrap();
        }
        self.touches.insert(key, 0);
        self.queue.push(key, ());
        false
    }
}

#[test]
fn each_chunk_is_queued_once_and_leaves_once() {
    let mut model = Model::new(50);
    let mut random = crate::random::SplitMix64::new(1);
    for _ in 0..20_000 {
        model.read((random.below(7), random.below(60) as u32));
        assert_eq!(model.queue.len(), model.touches.len());
    }
    let mut left = 0;
    while model.queue.pop(|_, ()| Fate::Leaves).is_some() {
        left += 1;
    }
    assert_eq!(left, 50);
}

#[test]
fn a_search_among_chunks_that_all_stay_ends() {
    let mut queue = S3Fifo::default();
    for chunk in 0..5000 {
        queue.push((0, chunk), ());
    }
    for left in (4000..5000).rev() {
        let mut asked = 0;
        let popped = queue.pop(|_, ()| {
            asked += 1;
            assert!(asked <= PASSED_MAX + 1, "it does not end");
            Fate::Stays
        });
        assert!(popped.is_some());
        assert_eq!(queue.len(), left);
    }
}

#[test]
fn a_scan_does_not_push_out_what_is_read_again() {
    let mut model = Model::new(100);
    for _ in 0..3 {
        for chunk in 0..80 {
            model.read((0, chunk));
        }
    }
    for chunk in 0..10_000 {
        model.read((1, chunk));
    }
    let kept = (0..80)
        .filter(|&chunk| model.touches.contains_key(&(0, chunk)))
        .count();
    assert!(kept >= 79, "{kept} of 80");
}

#[test]
fn a_chunk_that_comes_back_soon_goes_to_the_main_queue() {
    let mut queue = S3Fifo::default();
    for chunk in 0..20 {
        queue.push((0, chunk), ());
    }
    let (first, ()) = queue.pop(|_, ()| Fate::Leaves).unwrap();
    queue.push(first, ());
    assert_eq!(queue.main.front(), Some(&(first, ())));
}

#[test]
fn the_ghost_is_bounded() {
    let mut model = Model::new(100);
    for chunk in 0..10_000 {
        model.read((1, chunk));
    }
    assert!(model.queue.ghost.len() <= 101);
    assert_eq!(model.queue.ghost.len(), model.queue.in_ghost.len());
}
