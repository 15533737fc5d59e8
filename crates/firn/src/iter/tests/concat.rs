use super::support::{Entry, VecIter, check_random_moves, delete, entry, random_key, sort};
use crate::base::{InternalIterator, Kind, Result};
use crate::iter::{ChildOpener, ConcatIter};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;

/// Files with entries and bounds; records which files were opened.
struct Files {
    files: Vec<(Vec<u8>, Vec<u8>, Vec<Entry>)>,
    opened: RefCell<Vec<usize>>,
}

impl Files {
    fn new(files: Vec<Vec<Entry>>) -> Self {
        let bounds = |mut file: Vec<Entry>| {
            sort(&mut file);
            let (first, last) = (file[0].0.clone(), file[file.len() - 1].0.clone());
            (first, last, file)
        };
        Self {
            files: files.into_iter().map(bounds).collect(),
            opened: RefCell::default(),
        }
    }
}

impl ChildOpener for &Files {
    type Iter = VecIter;
    fn len(&self) -> usize {
        self.files.len()
    }
    fn smallest(&self, i: usize) -> &[u8] {
        &self.files[i].0
    }
    fn largest(&self, i: usize) -> &[u8] {
        &self.files[i].1
    }
    fn open(&self, i: usize) -> Result<VecIter> {
        self.opened.borrow_mut().push(i);
        Ok(VecIter::new(self.files[i].2.clone()))
    }
}

fn three_files() -> Files {
    Files::new(vec![
        vec![entry("a", 1, ""), entry("c", 1, "")],
        vec![entry("e", 1, ""), entry("g", 1, "")],
        vec![entry("i", 1, ""), delete("k", 1)],
    ])
}

#[test]
fn moves_like_one_sorted_source() {
    for seed in 0..60u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut all: Vec<Entry> = (0..rng.random_range(0..60))
            .map(|i| {
                (
                    random_key(&mut rng, 40),
                    50 - i % 50,
                    Kind::Put,
                    vec![i as u8],
                )
            })
            .collect();
        sort(&mut all);
        all.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
        // Files are cut only where the user key changes.
        let mut files: Vec<Vec<Entry>> = Vec::new();
        for entry in &all {
            let cut = rng.random_bool(0.3);
            match files.last_mut() {
                Some(file) if !cut || file.last().unwrap().0 == entry.0 => {
                    file.push(entry.clone());
                }
                _ => files.push(vec![entry.clone()]),
            }
        }
        let files = Files::new(files);
        let mut iter = ConcatIter::new(&files);
        check_random_moves(&mut iter, all, &mut rng, 40, 400, &format!("seed {seed}"));
    }
}

#[test]
fn opens_only_what_it_needs() {
    let files = three_files();
    let mut iter = ConcatIter::new(&files);
    assert!(iter.seek(b"f", 5).unwrap());
    assert!(iter.seek(b"e", 5).unwrap());
    assert_eq!(*files.opened.borrow(), [1]);
    assert!(iter.seek(b"d", 5).unwrap());
    assert_eq!(iter.key().user_key, b"e");
    assert_eq!(*files.opened.borrow(), [1]);
    assert!(!iter.seek(b"z", 5).unwrap());
    assert!(!iter.seek_before(b"a").unwrap());
    assert_eq!(*files.opened.borrow(), [1]);
    assert!(iter.seek_before(b"d").unwrap());
    assert_eq!(iter.key().user_key, b"c");
    assert_eq!(*files.opened.borrow(), [1, 0]);
}

#[test]
fn bounds_keep_other_sources_closed() {
    let files = three_files();
    let mut iter = ConcatIter::bounded(&files, Some(b"d"), Some(b"i"));
    let mut seen = Vec::new();
    let mut on = iter.seek_to_first().unwrap();
    while on {
        seen.push(iter.key().user_key.to_vec());
        on = iter.next().unwrap();
    }
    assert_eq!(seen, [b"e".to_vec(), b"g".to_vec()]);
    assert!(iter.seek_to_last().unwrap());
    assert_eq!(iter.key().user_key, b"g");
    assert!(iter.seek_before(b"z").unwrap());
    assert!(!iter.seek_before(b"e").unwrap());
    assert_eq!(*files.opened.borrow(), [1]);

    let mut none = ConcatIter::bounded(&files, Some(b"x"), Some(b"z"));
    assert!(!none.seek_to_first().unwrap());
    assert!(!none.seek_to_last().unwrap());
    assert!(!none.seek(b"x", 1).unwrap());
    assert_eq!(*files.opened.borrow(), [1]);
}
