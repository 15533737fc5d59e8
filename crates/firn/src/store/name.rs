//! File names: `{id:010}.{extension}`.

/// Identifies a file for ever; ids are never reused, not even after removal.
pub type FileId = u64;

/// What a data file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A sorted string table.
    Sst,
    /// A sorted run that a load put aside. No start needs what an earlier one left.
    Sort,
    /// Values out of line.
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

/// The name of a file, without directory.
pub fn file_name(kind: FileKind, id: FileId) -> String {
    format!("{id:010}.{}", kind.extension())
}

/// The kind and id behind a name; `None` for names that [`file_name`] does not make.
pub fn parse_file_name(name: &str) -> Option<(FileKind, FileId)> {
    let (digits, extension) = name.split_once('.')?;
    let kind = [FileKind::Sst, FileKind::Sort, FileKind::Blob]
        .into_iter()
        .find(|k| k.extension() == extension)?;
    let id = digits.parse().ok()?;
    (file_name(kind, id) == name).then_some((kind, id))
}
