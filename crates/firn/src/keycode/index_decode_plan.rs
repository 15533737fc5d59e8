//! Decodes index entries into the record buffer.

use super::key_part::KeyPart;
use super::key_reader::KeyReader;
use super::unpack_info::{UnpackInfo, UnpackReader};
use crate::base::{Error, Result};

#[derive(Debug, Clone)]
pub(super) struct DecodeStep {
    pub(super) part: KeyPart,
    pub(super) unpack: UnpackInfo,
    /// Whether the column is written to the record buffer; otherwise the part is skipped.
    pub(super) wanted: bool,
}

/// Decodes the entries of an index into the wanted columns of a record buffer. Only columns that
/// the index covers can be decoded. [`super::IndexCodec::plan`] creates a plan once, for many
/// entries. Decoding allocates no memory.
#[derive(Debug, Clone)]
pub struct IndexDecodePlan {
    record_len: usize,
    steps: Vec<DecodeStep>,
}

impl IndexDecodePlan {
    pub(super) fn new(record_len: usize, mut steps: Vec<DecodeStep>) -> Self {
        let end = steps
            .iter()
            .rposition(|step| step.wanted)
            .map_or(0, |i| i + 1);
        steps.truncate(end);
        Self { record_len, steps }
    }

    /// Decodes an entry into `record`. `key` is the user key without the index id.
    ///
    /// # Errors
    /// `Corruption`, without file name, if the bytes are no entry of this index; `record` is then
    /// partly written. `InvalidArgument` if `record` is too short.
    pub fn decode(&self, key: &[u8], value: &[u8], record: &mut [u8]) -> Result<()> {
        if record.len() < self.record_len {
            return Err(Error::invalid("record buffer too short"));
        }
        let mut reader = KeyReader::new(key);
        let mut items = UnpackReader::new(value);
        for step in &self.steps {
            step.run(&mut reader, &mut items, record)?;
        }
        Ok(())
    }
}

impl DecodeStep {
    fn run(
        &self,
        reader: &mut KeyReader<'_>,
        items: &mut UnpackReader<'_>,
        record: &mut [u8],
    ) -> Result<()> {
        let part = &self.part;
        if !self.wanted {
            if !part.skip(reader)? {
                self.skip_item(items)?;
            }
            return Ok(());
        }
        if self.unpack == UnpackInfo::Text {
            if part.decode_null(&mut reader.clone(), record)? {
                part.skip(reader)?;
                return Ok(());
            }
            part.skip(reader)?;
            return part.write(items.text()?, record);
        }
        if part.decode_null(reader, record)? {
            return Ok(());
        }
        let (mut negative_zero, mut spaces) = (false, 0);
        match self.unpack {
            UnpackInfo::NegativeZero => negative_zero = items.number()? != 0,
            UnpackInfo::Spaces => spaces = items.number()?,
            UnpackInfo::Nothing | UnpackInfo::Text => {}
        }
        part.decode(reader, negative_zero, spaces, record)
    }

    fn skip_item(&self, items: &mut UnpackReader<'_>) -> Result<()> {
        match self.unpack {
            UnpackInfo::Nothing => Ok(()),
            UnpackInfo::Text => items.text().map(|_| ()),
            UnpackInfo::Spaces | UnpackInfo::NegativeZero => items.number().map(|_| ()),
        }
    }
}
