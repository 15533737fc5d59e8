//! Compression of blocks.

use super::block::{PlaneLayout, StoredForm};
use super::decode_error::{DecodeError, Decoded};
use super::dictionary::{Dictionary, DigestedDictionary};
use super::format::RAW_BLOCK_MAX;
use crate::base::pool::Pool;
use crate::base::zstd_memory::ZstdObject;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective::{ZSTD_e_end, ZSTD_e_flush};
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, FrameFormat, InBuffer, OutBuffer, ResetDirective,
    compress_bound,
};

/// How the writer compresses blocks. A block that would shrink by less than an eighth is stored
/// raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Blocks are not compressed.
    None,
    /// LZ4, which is fast: for files that compactions soon rewrite.
    Lz4,
    /// ZSTD, which is dense: for data that stays where it is.
    Zstd {
        /// ZSTD's compression level, 1 to 22.
        level: i32,
        /// Whether to train a dictionary from the first blocks of the file; it is used only if a
        /// trial shows that it saves bytes.
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
            _ => return Err(DecodeError::Unsupported("block codec")),
        })
    }
}

/// How the writer prepares the blocks of a file for ZSTD. It chooses by a trial with the first
/// blocks of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tuning {
    pub(super) plane_layout: PlaneLayout,
    /// Whether ZSTD looks only for matches of at least [`LONG_MATCH`] bytes. Random digits and
    /// codes have many short matches by chance, and encoding such a match takes more bytes than it
    /// saves.
    pub(super) long_matches: bool,
    /// Whether the value tails begin a ZSTD block of their own, which has entropy tables of its
    /// own.
    pub(super) cut: bool,
}

impl Tuning {
    /// The bits under which the file's properties store the tuning.
    pub(super) fn to_bits(self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.plane_layout.numbers, 1)
            | bit(self.plane_layout.tails, 2)
            | bit(self.long_matches, 4)
            | bit(self.cut, 8)
    }

    /// The reverse of [`Self::to_bits`]. `None` if a newer writer has set bits that this version
    /// does not know.
    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        (bits < 16).then_some(Self {
            plane_layout: PlaneLayout {
                numbers: bits & 1 != 0,
                tails: bits & 2 != 0,
            },
            long_matches: bits & 4 != 0,
            cut: bits & 8 != 0,
        })
    }
}

type Context = ZstdObject<CCtx<'static>>;

/// Compresses blocks one after another and reuses the ZSTD contexts.
///
/// The ZSTD frames have neither magic number nor dictionary id, because the header of the stored
/// block already has the codec and the dictionary's id.
pub(super) struct Compressor {
    codec: Codec,
    tuning: Tuning,
    plain: Option<Context>,
    data: Option<Context>,
    dictionary: Option<u32>,
    out: Vec<u8>,
}

/// The payload of a stored block: its codec, the dictionary's id (0 if none is used), the bytes.
pub(super) type Payload<'a> = (StoredCodec, u32, &'a [u8]);

const LONG_MATCH: u32 = 7;
const LONG_MATCH_LEVEL: i32 = 1;
/// The value tails of a block get entropy tables apart from those of the bytes before them only if
/// each of the two parts has at least this many bytes. Otherwise the second set of tables takes
/// more bytes than it saves.
const CUT_MIN: usize = 128;

fn zstd_context(level: i32, long_matches: bool) -> Context {
    let mut context = CCtx::create();
    let mut set = |parameter| {
        context
            .set_parameter(parameter)
            .expect("ZSTD takes its own parameters");
    };
    set(CParameter::Format(FrameFormat::Magicless));
    set(CParameter::DictIdFlag(false));
    set(CParameter::ChecksumFlag(false));
    if long_matches {
        set(CParameter::CompressionLevel(level.min(LONG_MATCH_LEVEL)));
        set(CParameter::MinMatch(LONG_MATCH));
    } else {
        set(CParameter::CompressionLevel(level));
    }
    ZstdObject::new(context)
}

impl Compressor {
    pub(super) fn new(codec: Codec, tuning: Tuning) -> Self {
        let context = |long_matches| match codec {
            Codec::Zstd { level, .. } => Some(zstd_context(level, long_matches)),
            _ => None,
        };
        Self {
            codec,
            tuning,
            plain: context(false),
            data: context(tuning.long_matches),
            dictionary: None,
            out: Vec::new(),
        }
    }

    pub(super) fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Compresses all following data blocks with `dictionary`, if the codec is ZSTD.
    pub(super) fn set_dictionary(&mut self, dictionary: &Dictionary) {
        if let Some(context) = &mut self.data {
            context
                .with(|context| context.load_dictionary(dictionary.bytes()).map(drop))
                .expect("ZSTD takes any bytes as a dictionary");
            self.dictionary = Some(dictionary.id());
        }
    }

    /// The payload to store for a data block.
    pub(super) fn data<'a>(&'a mut self, block: &'a StoredForm) -> Payload<'a> {
        let raw = &block.raw[..];
        let Some(context) = &mut self.data else {
            return self.other(raw);
        };
        let tails_len = raw.len() - block.tails_at;
        let cut = self.tuning.cut && block.tails_at.min(tails_len) >= CUT_MIN;
        let parts = raw.split_at(if cut { block.tails_at } else { 0 });
        let len = context.with(|context| zstd(context, parts, &mut self.out));
        let (codec, id) = match self.dictionary {
            Some(id) => (StoredCodec::ZstdDictionary, id),
            None => (StoredCodec::Zstd, 0),
        };
        choose(codec, id, raw, &self.out, len)
    }

    /// The payload to store for a block that is compressed without a dictionary: an index block, a
    /// dictionary itself, or, with another codec than ZSTD, a data block.
    pub(super) fn other<'a>(&'a mut self, raw: &'a [u8]) -> Payload<'a> {
        let (codec, len) = match (self.codec, &mut self.plain) {
            (Codec::Lz4, _) => {
                let bound = lz4_flex::block::get_maximum_output_size(raw.len());
                self.out.resize(bound.max(self.out.len()), 0);
                let len = lz4_flex::block::compress_into(raw, &mut self.out).ok();
                (StoredCodec::Lz4, len)
            }
            (Codec::Zstd { .. }, Some(context)) => {
                let len = context.with(|context| zstd(context, (&[], raw), &mut self.out));
                (StoredCodec::Zstd, len)
            }
            _ => (StoredCodec::None, None),
        };
        choose(codec, 0, raw, &self.out, len)
    }
}

/// The compressed form if it is shorter than the raw form by at least an eighth, else the raw form.
fn choose<'a>(
    codec: StoredCodec,
    dictionary: u32,
    raw: &'a [u8],
    out: &'a [u8],
    len: Option<usize>,
) -> Payload<'a> {
    match len {
        Some(len) if len <= raw.len() - raw.len() / 8 => (codec, dictionary, &out[..len]),
        _ => (StoredCodec::None, 0, raw),
    }
}

/// Compresses `first` and `second` into one ZSTD frame and returns its length. If `first` is not
/// empty, `second` begins a new ZSTD block inside the frame, with entropy tables of its own.
fn zstd(
    context: &mut CCtx<'static>,
    (first, second): (&[u8], &[u8]),
    out: &mut Vec<u8>,
) -> Option<usize> {
    let len = first.len() + second.len();
    // Reserve more than `compress_bound` says, because ending a ZSTD block between the two parts
    // can take a few bytes more.
    out.resize((compress_bound(len) + CUT_MIN).max(out.len()), 0);
    if first.is_empty() {
        return context.compress2(&mut out[..], second).ok();
    }
    let mut stream = || {
        context.set_pledged_src_size(Some(len as u64))?;
        let mut output = OutBuffer::around(&mut out[..]);
        for (part, end) in [(first, ZSTD_e_flush), (second, ZSTD_e_end)] {
            let mut input = InBuffer::around(part);
            while context.compress_stream2(&mut output, &mut input, end)? > 0 {}
        }
        Ok::<_, usize>(output.pos())
    };
    let written = stream().ok();
    if written.is_none() {
        // The caller stores this block raw. Reset the context, or the next block would continue the
        // unfinished frame.
        context.reset(ResetDirective::SessionOnly).ok()?;
    }
    written
}

static DECOMPRESSORS: Pool<ZstdObject<DCtx<'static>>> = Pool::new();

fn decompressor() -> ZstdObject<DCtx<'static>> {
    let mut context = DCtx::create();
    context
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .expect("ZSTD takes its own parameters");
    ZstdObject::new(context)
}

/// Upper bound of the expansion factor of all codecs. A block header that claims more is damaged,
/// and is refused before memory of that size is allocated.
const EXPANSION_MAX: usize = 1 << 16;

/// Decompresses what [`Compressor`] has compressed. `raw_len` is the uncompressed length that the
/// header states.
pub(super) fn decompress(
    codec: StoredCodec,
    dictionary: Option<&DigestedDictionary>,
    payload: &[u8],
    raw_len: usize,
) -> Decoded<Vec<u8>> {
    let bad = DecodeError::Corrupt("compressed block does not expand to its length");
    if codec == StoredCodec::None {
        return if payload.len() == raw_len {
            Ok(payload.to_vec())
        } else {
            Err(DecodeError::Corrupt("raw block of another length"))
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
        (StoredCodec::ZstdDictionary, Some(dictionary)) => {
            let bytes = &mut raw[..];
            DECOMPRESSORS
                .try_with(decompressor, |d| {
                    d.with(|d| d.decompress_using_ddict(bytes, payload, dictionary.digested()))
                })
                .ok()
        }
        (StoredCodec::Zstd, _) => DECOMPRESSORS
            .try_with(decompressor, |d| {
                d.with(|d| d.decompress(&mut raw[..], payload))
            })
            .ok(),
        _ => {
            return Err(DecodeError::Corrupt(
                "block names a dictionary the file lacks",
            ));
        }
    };
    if len == Some(raw_len) {
        Ok(raw)
    } else {
        Err(bad)
    }
}
