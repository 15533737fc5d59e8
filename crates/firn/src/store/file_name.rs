//! File names: `{id:010}.{extension}`.

/// Identifies a file for ever; ids are never reused, not even after a removal. Only the id of a
/// file that nothing durable ever named may be given out again after a crash.
pub type FileId = u64;

/// The kind of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A sorted string table.
    Sst,
    /// A temporary sorted run of a load. An open of the database removes those that are left from
    /// an earlier one.
    Sort,
    /// Out-of-line values.
    Blob,
}

impl FileKind {
    fn extension(self) -> &'static str {
        match self {
            Self::Sst => "sst",
            Self::Sort => "sort",
            Self::Blob => "blob",
        }
    }
}

/// The name of a file, without its directory.
pub fn file_name(kind: FileKind, id: FileId) -> String {
    format!("{id:010}.{}", kind.extension())
}

/// Kind and id of a file name; `None` for names that [`file_name`] does not produce.
pub fn parse_file_name(name: &str) -> Option<(FileKind, FileId)> {
    let (digits, extension) = name.split_once('.')?;
    let kind = [FileKind::Sst, FileKind::Sort, FileKind::Blob]
        .into_iter()
        .find(|k| k.extension() == extension)?;
    let id = digits.parse().ok()?;
    (file_name(kind, id) == name).then_some((kind, id))
}
