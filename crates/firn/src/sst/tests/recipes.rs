//! Tests of files that inherit the compression recipe of another file.

use super::copy::{rows_of, source, transfer};
use super::model::check;
use super::*;
use crate::sst::{RecipeOffers, Salvage};

const SOURCE: u64 = 5;

/// Enough rows of one language for a recipe that other files may inherit.
fn rows(language: u64) -> Model {
    rows_of(language, 12_000)
}

fn offers(reader: &SstReader) -> Arc<RecipeOffers> {
    let mut offers = RecipeOffers::default();
    offers.add(reader).unwrap();
    Arc::new(offers)
}

fn write_with(
    model: &Model,
    options: &SstOptions,
    offers: Arc<RecipeOffers>,
) -> (Vec<u8>, SstSummary) {
    let file = MemFile::default();
    let writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options.clone(), 2);
    let mut writer = writer.with_recipe_offers(offers);
    for ((user_key, seqno), (kind, head, tail)) in model {
        let key = InternalKey::new(user_key, seqno.0, *kind);
        writer.add(key, Value::split(head, tail)).unwrap();
    }
    let summary = writer.finish().unwrap();
    let bytes = file.0.lock().unwrap().clone();
    (bytes, summary)
}

/// Id of the dictionary, compressed bytes of the trial, number of times handed on.
fn trial(reader: &SstReader) -> (u32, u32, u32) {
    let mut recipes = reader.properties().recipes.iter();
    let recipe = recipes.find(|recipe| recipe.own).unwrap();
    (
        recipe.dictionary,
        recipe.trial.ratio,
        recipe.trial.handed_on,
    )
}

/// The file has its own copy of the inherited dictionary: it reads back without its source, also
/// when a salvage finds its blocks without the index.
#[test]
fn a_file_holds_the_recipe_that_it_inherits() {
    let options = SstOptions::last_level(4096);
    let model = rows(1);
    let (_, reader) = source(&model, options.clone(), SOURCE);
    let (id, ratio, _) = trial(&reader);
    assert_ne!(id, 0, "words want a dictionary");
    let (bytes, summary) = write_with(&model, &options, offers(&reader));
    drop(reader);
    assert!(summary.recipe_inherited && !summary.recipe_tried);
    let mut rng = SmallRng::seed_from_u64(1);
    check(&model, bytes.clone(), &summary, &mut rng, "inherited");
    let made = open(bytes.clone()).unwrap();
    assert_eq!(trial(&made), (id, ratio, 1));
    assert_eq!(made.properties().dictionaries.len(), 1);

    let mut damaged = bytes;
    let footer = damaged.len() - crate::sst::format::FOOTER_LEN;
    damaged[footer] ^= 1;
    let file = MemFile(Arc::new(Mutex::new(damaged)));
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let salvage = Salvage::open(Arc::new(file), FILE_ID, NAME.into(), cache, &mut |_| ()).unwrap();
    let mut iter = salvage.iter(None);
    let (mut on, mut found) = (iter.seek_to_first().unwrap(), 0);
    while on {
        assert_eq!(iter.value().tail, found_tail(&model, found));
        found += 1;
        on = iter.next().unwrap();
    }
    assert_eq!(found, model.len());
}

fn found_tail(model: &Model, at: usize) -> &[u8] {
    &model.values().nth(at).unwrap().2
}

/// Data that changed gets a dictionary of its own, and the file does not carry the old one.
#[test]
fn other_data_gets_a_recipe_of_its_own() {
    let options = SstOptions::last_level(4096);
    let (_, reader) = source(&rows(1), options.clone(), SOURCE);
    let other = rows(2);
    let (bytes, summary) = write_with(&other, &options, offers(&reader));
    assert!(summary.recipe_tried && !summary.recipe_inherited);
    let made = open(bytes).unwrap();
    let (id, _, handed_on) = trial(&made);
    assert_ne!(id, trial(&reader).0);
    assert_eq!((made.properties().dictionaries.len(), handed_on), (1, 0));
    let alone = open(write(&other, options).0).unwrap();
    let (own, alone) = (made.properties(), alone.properties());
    assert_eq!(
        own.data_bytes, alone.data_bytes,
        "as if nothing had been offered"
    );
}

/// From file to file, one recipe is handed on, and compared with a new one now and then.
#[test]
fn a_recipe_is_tried_again_now_and_then() {
    let options = SstOptions::last_level(4096);
    let model = rows(1);
    let (_, mut reader) = source(&model, options.clone(), SOURCE);
    let first = trial(&reader).0;
    let mut tried = Vec::new();
    for generation in 1..=20 {
        let (bytes, summary) = write_with(&model, &options, offers(&reader));
        assert!(summary.recipe_inherited, "{generation}");
        if summary.recipe_tried {
            tried.push(generation);
        }
        reader = open(bytes).unwrap();
        assert_eq!(trial(&reader).0, first);
    }
    assert_eq!(tried, [9, 18]);
}

/// Blocks copied from a file with an inherited recipe pass the recipe on.
#[test]
fn copied_blocks_pass_on_their_recipe() {
    let options = SstOptions::last_level(4096);
    let model = rows(1);
    let (_, reader) = source(&model, options.clone(), SOURCE);
    let id = trial(&reader).0;
    let (bytes, _) = write_with(&model, &options, offers(&reader));
    let inherited = open(bytes).unwrap();
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), 9, options, 2);
    let mut blocks = 0;
    let copied = transfer(&inherited, &mut writer, || {
        blocks += 1;
        blocks % 8 != 0
    });
    assert!(copied.unwrap() > 100);
    let summary = writer.finish().unwrap();
    assert!(!summary.recipe_tried, "most blocks are copies");
    let bytes = file.0.lock().unwrap().clone();
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let file = MemFile(Arc::new(Mutex::new(bytes)));
    let made = SstReader::open(Arc::new(file), 9, "copy".into(), cache).unwrap();
    assert_eq!(made.verify().unwrap().entries, model.len() as u64);
    let (of, _, handed_on) = trial(&made);
    assert_eq!((of, handed_on), (id, 2));
}

/// Copies whole files from one to the next. No file compresses anything, so the count of the
/// copied recipe decides when the blocks are compressed again and a new recipe is compared.
#[test]
fn copied_blocks_are_compressed_again_now_and_then() {
    let options = SstOptions::last_level(4096);
    let model = rows(1);
    let (_, mut reader) = source(&model, options.clone(), SOURCE);
    let mut merged = Vec::new();
    for generation in 1..=20 {
        let file = MemFile::default();
        let id = SOURCE + generation;
        let writer = SstWriter::new(Box::new(file.clone()), id, options.clone(), 2);
        let mut writer = writer.with_recipe_offers(offers(&reader));
        let copied = transfer(&reader, &mut writer, || true).unwrap();
        let summary = writer.finish().unwrap();
        if copied == 0 {
            merged.push(generation);
            assert!(summary.recipe_tried, "{generation}");
        }
        let cache = Arc::new(SstBlockCache::new(1 << 20));
        reader = SstReader::open(Arc::new(file), id, format!("copy {id}"), cache).unwrap();
        assert_eq!(reader.verify().unwrap().entries, model.len() as u64);
        assert_eq!(reader.properties().dictionaries.len(), 1, "{generation}");
    }
    assert_eq!(merged, [9, 18]);
}

/// A file has few copies of its own kind of rows and many new rows of another kind: the recipe of
/// the copies is only an offer.
#[test]
fn a_copied_recipe_does_not_serve_other_data() {
    let options = SstOptions::last_level(4096);
    let (_, reader) = source(&rows_of(1, 30_000), options.clone(), SOURCE);
    let file = MemFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), 9, options, 2);
    assert!(transfer(&reader, &mut writer, || true).unwrap() > 100);
    for ((user_key, _), (kind, head, tail)) in &rows(2) {
        let key = InternalKey::new(user_key, 0, *kind);
        writer.add(key, Value::split(head, tail)).unwrap();
    }
    let summary = writer.finish().unwrap();
    assert!(summary.recipe_tried && !summary.recipe_inherited);
    let cache = Arc::new(SstBlockCache::new(1 << 20));
    let made = SstReader::open(Arc::new(file), 9, "mixed".into(), cache).unwrap();
    assert_eq!(made.properties().dictionaries.len(), 2);
    assert_eq!(made.verify().unwrap().entries, 42_000);
}

/// Copies and new rows of many kinds take turns. Whatever the order, a reader accepts the number of
/// dictionaries, and each block finds its own.
#[test]
fn any_mixture_of_copies_and_new_rows_reads_back() {
    let options = SstOptions::last_level(4096);
    let sources: Vec<_> = (1..=8)
        .map(|language| {
            let rows = rows_of(language, 3000 + 1500 * language);
            let (_, reader) = source(&rows, options.clone(), 100 + language);
            (rows, reader)
        })
        .collect();
    for seed in 0..12 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let file = MemFile::default();
        let writer = SstWriter::new(Box::new(file.clone()), 9, options.clone(), 2);
        let offered = &sources[rng.random_range(0..8)].1;
        let mut writer = writer.with_recipe_offers(offers(offered));
        let mut entries = 0;
        for (rows, reader) in &sources {
            let share = [0.0, 0.5, 0.97, 1.0][rng.random_range(0..4)];
            transfer(reader, &mut writer, || rng.random_bool(share)).unwrap();
            entries += rows.len() as u64;
        }
        writer.finish().unwrap();
        let cache = Arc::new(SstBlockCache::new(1 << 20));
        let made = SstReader::open(Arc::new(file), 9, format!("seed {seed}"), cache).unwrap();
        assert_eq!(made.verify().unwrap().entries, entries, "seed {seed}");
        let own = made.properties().recipes.iter().filter(|r| r.own).count();
        assert!(own <= 1, "seed {seed}");
    }
}
