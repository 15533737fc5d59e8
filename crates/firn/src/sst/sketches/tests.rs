use super::*;
use crate::base::Kind;
use crate::base::key::INDEX_ID_LEN;
use crate::base::prefix_extractor::PrefixExtractor;

/// Knows the indexes with even ids: their keys have one part of four bytes.
struct Even;

impl PrefixExtractors for Even {
    fn prefix_extractor(&self, index: IndexId) -> Option<Arc<dyn PrefixExtractor>> {
        index.is_multiple_of(2).then(|| Arc::new(Four) as _)
    }
}

struct Four;

impl PrefixExtractor for Four {
    fn prefixes(&self) -> usize {
        1
    }

    fn fixed_len(&self, _part: usize) -> Option<usize> {
        Some(4)
    }

    fn part_end(&self, user_key: &[u8], _part: usize, from: usize) -> Option<usize> {
        (user_key.len() >= from + INDEX_ID_LEN).then_some(from + 4)
    }
}

fn key(index: IndexId, n: u32) -> Vec<u8> {
    [index.to_be_bytes(), (n / 10).to_be_bytes(), n.to_be_bytes()].concat()
}

#[test]
fn each_known_index_gets_the_values_of_its_puts() {
    let mut builder = SketchBuilder::new(Arc::new(Even));
    let mut stats = Vec::new();
    for index in 1..=4u32 {
        for n in 0..100 {
            let kind = [Kind::Put, Kind::Delete][usize::from(n >= 50)];
            builder.add(index, InternalKey::new(&key(index, n), 9, kind));
        }
        stats.push(IndexStats {
            index,
            // The file has one entry of index 4 more than the builder was given.
            entries: 100 + u64::from(index == 4),
            ..IndexStats::default()
        });
    }
    let done = builder.finish(&stats);
    let indexes: Vec<_> = done.iter().map(|one| one.index).collect();
    assert_eq!(indexes, [2]);
    let sketches = done[0].sketches().unwrap();
    assert_eq!(sketches.len(), 1);
    assert_eq!(sketches[0].estimate().round(), 5.0);
    let mut bytes = Vec::new();
    done[0].put(&mut bytes);
    assert_eq!(
        IndexSketches::take(&mut &bytes[..]).as_ref(),
        Some(&done[0])
    );
    assert!(builder.finish(&stats).is_empty());
}

#[test]
fn a_key_of_another_shape_leaves_the_index_without() {
    let mut builder = SketchBuilder::new(Arc::new(Even));
    builder.add(2, InternalKey::new(&[0, 0, 0, 2, 9], 9, Kind::Put));
    let stats = [IndexStats {
        index: 2,
        entries: 1,
        ..IndexStats::default()
    }];
    assert!(builder.finish(&stats).is_empty());
}
