//! What a simulated node does wrong.

/// Faults of a node, each in so many of 1,000 cases. A case is a value that it sends, or a batch
/// where the text says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A bit of the value is another.
    pub flip: u32,
    /// The value of another name.
    pub other: u32,
    /// An older value of the name.
    pub old: u32,
    /// The value is shorter or longer, and its length says so.
    pub resize: u32,
    /// The token of another request.
    pub token: u32,
    /// The value is sent twice.
    pub double: u32,
    /// The value is left out: the node evicts it.
    pub evict: u32,
    /// Some bytes that mean nothing stand before the answers of a batch.
    pub garbage: u32,
    /// The answers of a batch end in the middle, and nothing follows.
    pub cut: u32,
    /// The answers of a batch end in the middle, and the connection is closed.
    pub reset: u32,
    /// The answers of a batch come up to `slow_us` late.
    pub slow: u32,
    /// How late slow answers are, at most, microseconds.
    pub slow_us: u64,
    /// Bytes that the network carries in a microsecond; 0: any number.
    pub bytes_per_us: u64,
}

impl Faults {
    /// All of them: lies in `lies` of 1,000 cases, and what ends the connection in `breaks`.
    pub fn all(lies: u32, breaks: u32) -> Self {
        Self {
            flip: lies,
            other: lies,
            old: lies,
            resize: lies,
            evict: lies,
            slow: lies,
            slow_us: 20_000,
            bytes_per_us: 0,
            token: breaks,
            double: breaks,
            garbage: breaks,
            cut: breaks,
            reset: breaks,
        }
    }
}
