//! Keys, values and distributions of keys. They are computed from seeds, so that each engine writes
//! and reads the same entries in the same order.

/// Bytes of a key.
pub const KEY_LEN: usize = 16;

/// Bytes of a value. The first half is the entry's number and random bytes, and the second half
/// repeats the first.
pub const VALUE_LEN: usize = 180;

/// A key of the bench.
pub type Key = [u8; KEY_LEN];

/// Bytes of one entry as the user counts them.
pub const ENTRY_LEN: u64 = (KEY_LEN + VALUE_LEN) as u64;

/// The key of entry `number`: sixteen decimal digits, so that keys sort as numbers do.
pub fn key(number: u64) -> Key {
    let mut key = [b'0'; KEY_LEN];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Fills `out` with the value of entry `number`. The first half is the number and random bytes; the
/// second half repeats the first.
pub fn value(number: u64, random: &mut Random, out: &mut [u8; VALUE_LEN]) {
    let (first, second) = out.split_at_mut(VALUE_LEN / 2);
    for chunk in first.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
    first[..8].copy_from_slice(&number.to_le_bytes());
    second.copy_from_slice(first);
}

/// Whether `value` has the length [`VALUE_LEN`] and begins with `number`, as a value that [`value`]
/// makes for this entry does.
pub fn is_value_of(number: u64, value: &[u8]) -> bool {
    value.len() == VALUE_LEN && value[..8] == number.to_le_bytes()
}

/// Splitmix64.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The random numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6a09_e667_f3bc_c909)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // It never ends, so it is no iterator.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A permutation of 0..n: four Feistel rounds permute 0..m, where m is the smallest power of four
/// that is at least n. A result of n or more is permuted again until it is below n.
#[derive(Clone, Copy)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
}

impl Permutation {
    /// The permutation of 0..`n`.
    pub fn new(n: u64) -> Self {
        let bits = u64::BITS - n.max(2).saturating_sub(1).leading_zeros();
        Self {
            n,
            half_bits: bits.div_ceil(2),
        }
    }

    /// The number to which the permutation maps `i`.
    pub fn at(&self, i: u64) -> u64 {
        let mut x = i;
        loop {
            x = self.once(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn once(&self, x: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..4 {
            let mixed = mix(right ^ (round << 60)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

/// Ranks 1..=n with probability proportional to 1 / rank^s, by rejection inversion (Hörmann and
/// Derflinger, 1996).
#[derive(Clone, Copy)]
pub struct Zipf {
    n: f64,
    s: f64,
    h_first: f64,
    h_last: f64,
    accept: f64,
}

impl Zipf {
    /// The distribution over `n` ranks with exponent `s`.
    pub fn new(n: u64, s: f64) -> Self {
        let mut zipf = Self {
            n: n as f64,
            s,
            h_first: 0.0,
            h_last: 0.0,
            accept: 0.0,
        };
        zipf.h_first = zipf.integral(1.5) - 1.0;
        zipf.h_last = zipf.integral(n as f64 + 0.5);
        zipf.accept = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-s));
        zipf
    }

    /// Draws a rank, counted from 0.
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_last + random.unit() * (self.h_first - self.h_last);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.accept || u >= self.integral(k + 0.5) - k.powf(-self.s) {
                return k as u64 - 1;
            }
        }
    }

    fn integral(&self, x: f64) -> f64 {
        if self.s == 1.0 {
            x.ln()
        } else {
            (x.powf(1.0 - self.s) - 1.0) / (1.0 - self.s)
        }
    }

    fn inverse(&self, y: f64) -> f64 {
        if self.s == 1.0 {
            y.exp()
        } else {
            (1.0 + y * (1.0 - self.s)).powf(1.0 / (1.0 - self.s))
        }
    }
}

#[cfg(test)]
mod tests;
