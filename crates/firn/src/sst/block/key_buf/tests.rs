use super::{INLINE, KeyBuf};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[test]
fn agrees_with_a_vector_over_the_border_of_lengths() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut key, mut model) = (KeyBuf::default(), Vec::new());
        for step in 0..500 {
            if rng.random_range(0..3) == 0 {
                let len = rng.random_range(0..=model.len());
                key.truncate(len);
                model.truncate(len);
            } else {
                let more: Vec<u8> = (0..rng.random_range(0..INLINE / 2))
                    .map(|_| rng.random())
                    .collect();
                key.extend(&more);
                model.extend_from_slice(&more);
            }
            assert_eq!(key.as_slice(), model, "seed {seed}, step {step}");
            assert_eq!(key.len(), model.len(), "seed {seed}, step {step}");
        }
    }
}
