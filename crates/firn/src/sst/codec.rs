//! Compression of blocks.

use super::damage::{Damage, Decoded};
use super::dictionary::Dictionary;
use super::format::RAW_BLOCK_MAX;
use std::cell::RefCell;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, compress_bound};

/// How the writer compresses. A block that would save less than an eighth is stored raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    None,
    /// LZ4: fast, for levels that are rewritten soon.
    Lz4,
    /// ZSTD: dense, for data that stays.
    Zstd {
        /// ZSTD's level; 1 to 22.
        level: i32,
        /// Train a dictionary from the first blocks of the file, and keep it if it pays.
        dictionary: bool,
    },
}

/// The codec byte of a stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum StoredCodec {
    None = 0,
    Lz4 = 1,
    Zstd = 2,
    ZstdDictionary = 3,
}

impl StoredCodec {
    pub(super) fn from_u8(byte: u8) -> Decoded<Self> {
        Ok(match byte {
            0 => Self::None,
            1 => Self::Lz4,
            2 => Self::Zstd,
            3 => Self::ZstdDictionary,
            _ => return Err(Damage::Unsupported("block codec")),
        })
    }
}

/// Compresses blocks one after another, reusing its contexts.
///
/// The ZSTD frames carry neither magic nor dictionary id: the block header says both.
pub(super) struct Compressor {
    codec: Codec,
    plain: Option<CCtx<'static>>,
    with_dictionary: Option<(u32, CCtx<'static>)>,
    out: Vec<u8>,
}

fn zstd_context(level: i32) -> CCtx<'static> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::DictIdFlag(false),
        CParameter::ChecksumFlag(false),
    ] {
        context
            .set_parameter(parameter)
            .expect("ZSTD takes its own parameters");
    }
    context
}

impl Compressor {
    pub(super) fn new(codec: Codec) -> Self {
        Self {
            codec,
            plain: match codec {
                Codec::Zstd { level, .. } => Some(zstd_context(level)),
                _ => None,
            },
            with_dictionary: None,
            out: Vec::new(),
        }
    }

    /// Compresses data blocks with `dictionary` from now on. ZSTD digests it once, at first use.
    pub(super) fn set_dictionary(&mut self, dictionary: &Dictionary) {
        if let Codec::Zstd { level, .. } = self.codec {
            let mut context = zstd_context(level);
            context
                .load_dictionary(dictionary.bytes())
                .expect("ZSTD takes any bytes as a dictionary");
            self.with_dictionary = Some((dictionary.id(), context));
        }
    }

    /// The payload to store for `raw`, its codec, and the dictionary's id (0 without).
    pub(super) fn compress<'a>(
        &'a mut self,
        raw: &'a [u8],
        use_dictionary: bool,
    ) -> (StoredCodec, u32, &'a [u8]) {
        let (codec, dictionary, len) = match (self.codec, &mut self.with_dictionary) {
            (Codec::None, _) => return (StoredCodec::None, 0, raw),
            (Codec::Lz4, _) => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                self.out.resize(bound.max(self.out.len()), 0);
                let len = lz4_flex::block::compress_into(raw, &mut self.out).ok();
                (StoredCodec::Lz4, 0, len)
            }
            (Codec::Zstd { .. }, Some((id, context))) if use_dictionary => {
                let len = zstd(context, raw, &mut self.out);
                (StoredCodec::ZstdDictionary, *id, len)
            }
            (Codec::Zstd { .. }, _) => {
                let context = self.plain.as_mut().expect("made with the codec");
                (StoredCodec::Zstd, 0, zstd(context, raw, &mut self.out))
            }
        };
        match len {
            Some(len) if len <= raw.len() - raw.len() / 8 => (codec, dictionary, &self.out[..len]),
            _ => (StoredCodec::None, 0, raw),
        }
    }
}

fn zstd(context: &mut CCtx<'static>, raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    out.resize(compress_bound(raw.len()).max(out.len()), 0);
    context.compress2(&mut out[..], raw).ok()
}

thread_local! {
    static DECOMPRESS: RefCell<DCtx<'static>> = RefCell::new({
        let mut context = DCtx::create();
        context
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .expect("ZSTD takes its own parameters");
        context
    });
}

/// No codec expands further than this; what claims more is damaged and must not cost memory.
const EXPANSION_MAX: usize = 1 << 16;

/// Undoes [`Compressor::compress`].
pub(super) fn decompress(
    codec: StoredCodec,
    dictionary: Option<&Dictionary>,
    payload: &[u8],
    raw_len: usize,
) -> Decoded<Vec<u8>> {
    let bad = Damage::Corrupt("compressed block does not expand to its length");
    if codec == StoredCodec::None {
        return if payload.len() == raw_len {
            Ok(payload.to_vec())
        } else {
            Err(Damage::Corrupt("raw block of another length"))
        };
    }
    if raw_len
        > payload
            .len()
            .saturating_mul(EXPANSION_MAX)
            .min(RAW_BLOCK_MAX)
    {
        return Err(bad);
    }
    let mut raw = vec![0; raw_len];
    let len = match (codec, dictionary) {
        (StoredCodec::Lz4, _) => lz4_flex::block::decompress_into(payload, &mut raw).ok(),
        (StoredCodec::ZstdDictionary, Some(dictionary)) => DECOMPRESS.with_borrow_mut(|d| {
            d.decompress_using_ddict(&mut raw[..], payload, dictionary.digested())
                .ok()
        }),
        (StoredCodec::Zstd, _) => {
            DECOMPRESS.with_borrow_mut(|d| d.decompress(&mut raw[..], payload).ok())
        }
        _ => return Err(Damage::Corrupt("block names a dictionary the file lacks")),
    };
    if len == Some(raw_len) {
        Ok(raw)
    } else {
        Err(bad)
    }
}
