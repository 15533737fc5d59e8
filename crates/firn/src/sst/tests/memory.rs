//! Memory of an open file, part by part.

use super::*;

/// Rows as in a table of orders: a key of 12 bytes, digits, and words.
fn orders(writer: &mut SstWriter, bytes: u64) {
    let mut rng = SmallRng::seed_from_u64(32);
    let mut n = 0u64;
    while writer.estimated_size() < bytes {
        let key = [&1u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
        let head: Vec<u8> = (0..24).map(|_| rng.random()).collect();
        let tail = format!(
            "name={:08};street=Some Street {};city=Town {};comment=carefully final deposits {}",
            rng.random_range(0..100_000_000u64), n % 97, rng.random_range(0..300u32), rng.random::<u32>()
        );
        writer.add(InternalKey::new(&key, 0, Kind::Put), Value::split(&head, tail.as_bytes())).unwrap();
        n += 1;
    }
}

#[test]
fn parts() {
    for (name, options) in [("dense", SstOptions::last_level(8192)), ("light", SstOptions::upper_level(8192))] {
        let file = MemFile::default();
        let mut writer = SstWriter::new(Box::new(file.clone()), FILE_ID, options, 1);
        orders(&mut writer, 32 << 20);
        writer.finish().unwrap();
        let reader = open(file.0.lock().unwrap().clone()).unwrap();
        let d: Vec<_> = reader.dictionaries().iter().map(|d| (d.bytes().len(), d.memory())).collect();
        eprintln!("{name}: size {} entries {} blocks {} partitions {} top {} partitions mem {} dictionaries {:?} sketches {} struct {} stored dict {:?}",
            reader.size(), reader.properties().entries, reader.properties().data_blocks, reader.index().partitions(),
            reader.index().top_memory(), reader.index().partitions_memory(), d, reader.properties().sketches_memory(), size_of::<SstReader>(), reader.dictionary_bytes());
    }
}
