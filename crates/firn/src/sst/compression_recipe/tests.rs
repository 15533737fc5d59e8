use super::*;
use crate::base::{InternalKey, Kind, Value};
use crate::sst::block::BlockBuilder;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const CODEC: Codec = Codec::Zstd {
    level: 3,
    dictionary: true,
};

/// Blocks of words. A word is from the first vocabulary with this chance, else from the second.
fn blocks(seed: u64, chance: f64) -> Vec<Vec<u8>> {
    let vocabulary = |seed| {
        let mut rng = SmallRng::seed_from_u64(seed);
        let word = |rng: &mut SmallRng| -> Vec<u8> {
            (0..14).map(|_| rng.random_range(b'a'..=b'z')).collect()
        };
        (0..300).map(|_| word(&mut rng)).collect::<Vec<_>>()
    };
    let vocabularies = [vocabulary(1000), vocabulary(2000)];
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut number = 0_u64;
    let mut block = || {
        block_of(&mut number, || {
            let mut row = Vec::new();
            for _ in 0..4 {
                let words = &vocabularies[usize::from(!rng.random_bool(chance))];
                row.extend_from_slice(&words[rng.random_range(0..words.len())]);
                row.extend((0..4).map(|_| rng.random_range(b'0'..=b'9')));
            }
            row
        })
    };
    (0..200).map(|_| block()).collect()
}

/// A row-wise block of rows that `row` makes. `number` is the key of the next row.
fn block_of(number: &mut u64, mut row: impl FnMut() -> Vec<u8>) -> Vec<u8> {
    let mut builder = BlockBuilder::new(false, false);
    while builder.size() < 8 << 10 {
        *number += 1;
        let key = [&1u32.to_be_bytes()[..], &number.to_be_bytes()].concat();
        let key = InternalKey::new(&key, 0, Kind::Put);
        builder.add(key, Value::split(b"", &row()), 0);
    }
    builder.finish().raw
}

fn choose(blocks: &[Vec<u8>], offered: Option<Recipe>) -> ChosenRecipe {
    let built: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    Recipe::choose(CODEC, false, &built, offered)
}

/// Compressed bytes of all `blocks`.
fn size(blocks: &[Vec<u8>], recipe: &Recipe) -> usize {
    let all = TrialBlocks {
        blocks: blocks.iter().map(Vec::as_slice).collect(),
        raw: 1,
    };
    all.compressed(CODEC, false, recipe)
}

fn id(recipe: &Recipe) -> Option<u32> {
    recipe.dictionary.as_ref().map(|dictionary| dictionary.id())
}

#[test]
fn data_of_the_same_kind_inherits_and_other_data_does_not() {
    for seed in 0..4 {
        let own = choose(&blocks(seed, 1.0), None);
        assert!(own.tried && !own.inherited);
        assert!(id(&own.recipe).is_some());
        let same = choose(&blocks(seed + 100, 1.0), Some(own.recipe.clone()));
        assert!(same.inherited && !same.tried, "seed {seed}");
        assert_eq!(id(&same.recipe), id(&own.recipe));
        let other = choose(&blocks(seed + 200, 0.0), Some(own.recipe.clone()));
        assert!(other.tried && !other.inherited, "seed {seed}");
        assert_ne!(id(&other.recipe), id(&own.recipe));
        // A choice depends on the blocks and the offer alone.
        let again = choose(&blocks(seed + 200, 0.0), Some(own.recipe));
        assert_eq!(id(&again.recipe), id(&other.recipe));
    }
}

/// One vocabulary slowly gives way to another. The recipe that is handed on from file to file must
/// never be much worse than one that was made for the file: by two percent, and by as much as the
/// data changes while it is handed on [`HANDED_ON_MAX`] times.
#[test]
fn a_slow_change_leaves_no_stale_dictionary() {
    for seed in 0..2 {
        let mut recipe = choose(&blocks(seed, 1.0), None).recipe;
        let first = id(&recipe);
        let (mut tried, mut new, mut stale) = (0, 0, 0);
        let (mut worst, mut sum) = (0.0_f64, 0.0_f64);
        for step in 1..=110 {
            let chance = 1.0 - f64::from(step).min(100.0) / 100.0;
            let blocks = blocks(seed * 1000 + step as u64, chance);
            let chosen = choose(&blocks, Some(recipe));
            tried += u32::from(chosen.tried);
            new += u32::from(!chosen.inherited);
            recipe = chosen.recipe;
            // Other blocks of the same kind, on which neither recipe was trained.
            let others = self::blocks(seed * 1000 + step as u64 + 500, chance);
            let best = size(&others, &choose(&blocks, None).recipe);
            let ratio = size(&others, &recipe) as f64 / best as f64;
            sum += ratio;
            worst = worst.max(ratio);
            stale = if ratio > 1.04 { stale + 1 } else { 0 };
            assert!(stale <= HANDED_ON_MAX, "stale for {stale} files at {step}");
        }
        assert_ne!(id(&recipe), first);
        assert!(sum / 110.0 < 1.02, "{sum}");
        assert!(worst < 1.15, "{worst}");
        assert!((2..40).contains(&new), "{new} new recipes");
        assert!(tried < 70, "{tried} trials");
    }
}

#[test]
fn what_cannot_be_judged_is_not_inherited() {
    let all = blocks(1, 1.0);
    let own = choose(&all, None).recipe;
    // Too few bytes.
    let few = choose(&all[..100], Some(own.clone()));
    assert!(few.tried && !few.inherited && few.recipe.trial.is_none());
    // The recipe of an older writer.
    let unknown = Recipe {
        trial: None,
        ..own.clone()
    };
    let chosen = choose(&all, Some(unknown));
    assert!(chosen.tried && !chosen.inherited);
    // Random bytes want no dictionary, and that is inherited as well.
    let mut rng = SmallRng::seed_from_u64(7);
    let mut number = 0;
    let mut random = || (0..100).map(|_| rng.random()).collect();
    let noise: Vec<Vec<u8>> = (0..200)
        .map(|_| block_of(&mut number, &mut random))
        .collect();
    let none = choose(&noise, None).recipe;
    assert_eq!(id(&none), None);
    let chosen = choose(&noise, Some(none));
    assert!(chosen.inherited && !chosen.tried);
}
