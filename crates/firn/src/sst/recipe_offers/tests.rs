use super::*;
use crate::sst::block_compression::Tuning;
use crate::sst::compression_recipe::RecipeTrial;

#[test]
fn the_file_with_most_of_the_blocks_offers_its_recipe() {
    let recipe = |ratio| Recipe {
        tuning: Tuning::default(),
        dictionary: None,
        trial: Some(RecipeTrial {
            ratio,
            handed_on: 0,
        }),
    };
    let offer = |largest: &[u8], ratio| RecipeOffer {
        largest: largest.to_vec(),
        recipe: Some(recipe(ratio)),
    };
    let offers = RecipeOffers(vec![offer(b"f", 1), offer(b"m", 2), offer(b"s", 3)]);
    let of = |ends: &[&[u8]]| {
        let chosen = offers.for_blocks(ends.iter().copied())?;
        chosen.trial.map(|trial| trial.ratio)
    };
    assert_eq!(of(&[b"a", b"f", b"g"]), Some(1));
    assert_eq!(of(&[b"a", b"g", b"m", b"n"]), Some(2));
    assert_eq!(of(&[b"a", b"x", b"y"]), Some(3), "behind all files");
    assert_eq!(of(&[b"a", b"n"]), Some(1), "the first of equals");
    assert!(
        RecipeOffers::default()
            .for_blocks([&b"a"[..]].into_iter())
            .is_none()
    );
}
