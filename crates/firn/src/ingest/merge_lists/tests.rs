use super::*;
use crate::base::{Kind, Value};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[test]
fn lists_come_back_as_one() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut model = Vec::new();
        let mut inputs = Vec::new();
        for _ in 0..rng.random_range(0..12) {
            let mut list = SortBuffer::default();
            for _ in 0..rng.random_range(0..30) {
                let mut key = vec![0, 0, 0, 1];
                let len = rng.random_range(0..12);
                key.extend((0..len).map(|_| rng.random_range(0..2u8)));
                model.push(key.clone());
                list.push(LoadEntry {
                    user_key: &key,
                    unique_len: 0,
                    kind: Kind::Put,
                    value: Value::EMPTY,
                });
            }
            list.sort();
            inputs.push(MergeInput::Memory(list, 0));
        }
        model.sort();
        let mut merge = Merge::new(inputs);
        for key in model {
            assert_eq!(merge.entry().unwrap().user_key, key, "seed {seed}");
            merge.advance().unwrap();
        }
        assert!(merge.entry().is_none());
    }
}
