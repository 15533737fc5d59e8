use super::*;

#[test]
fn pieces_of_any_size_do_not_overlap() {
    let arena = Arena::new();
    let sizes = [16, 48, PIECE_MAX, PIECE_MAX + 16, 2 * CHUNK_MAX, 32];
    let rounds = if cfg!(miri) { 2 } else { 60 };
    let mut pieces = Vec::new();
    for (round, size) in (0..rounds).flat_map(|round| sizes.map(|size| (round, size))) {
        let piece = arena.alloc(size);
        assert!(piece.as_ptr().addr().is_multiple_of(ALIGN));
        // SAFETY: the arena has just handed out the piece with this size.
        unsafe { piece.write_bytes(round as u8, size) };
        pieces.push((piece, size, round as u8));
    }
    let mut sum = 0;
    for (piece, size, fill) in pieces {
        // SAFETY: the piece was filled above, has this size, and lives as long as the arena.
        let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), size) };
        // Under Miri, check only some bytes: each takes a microsecond.
        let step = if cfg!(miri) { size.div_ceil(64) } else { 1 };
        assert!(bytes.iter().step_by(step).all(|&b| b == fill));
        sum += size as u64;
    }
    assert!(arena.allocated() >= sum);
    assert!(arena.allocated() <= sum + sum / 8 + 2 * CHUNK_MAX as u64);
}

#[test]
fn threads_get_different_pieces() {
    let arena = Arena::new();
    let per_thread = if cfg!(miri) { 50 } else { 5000 };
    let mut all: Vec<usize> = std::thread::scope(|scope| {
        let take = || (0..per_thread).map(|_| arena.alloc(64).as_ptr().addr());
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(move || take().collect::<Vec<_>>()))
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 64));
    assert_eq!(all.len(), 4 * per_thread);
}
