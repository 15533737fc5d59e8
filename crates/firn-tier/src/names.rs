//! Names of objects.

use firn::store::FileId;
use xxhash_rust::xxh3::xxh3_64;

/// The object with the id of the database.
pub const IDENTITY: &str = "db";

/// The object with the token of the process that has used the store last.
pub const OWNER: &str = "owner";

/// What the names of SSTs begin with.
pub(crate) const SSTS: &str = "sst/";

/// The object of an SST: `sst/9f/42`. Stores spread requests over servers by the beginning of
/// names, so a hash stands before the id.
pub fn object_name(id: FileId) -> String {
    let hash = xxh3_64(&id.to_le_bytes()) & 0xff;
    format!("{SSTS}{hash:02x}/{id}")
}

/// The SST of an object; `None` if the name is another one.
pub fn parse_object_name(name: &str) -> Option<FileId> {
    let (_, digits) = name.strip_prefix(SSTS)?.split_once('/')?;
    let id = digits.parse().ok()?;
    (object_name(id) == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_nobodys() {
        for id in [0, 1, 42, 1 << 40, u64::MAX] {
            let name = object_name(id);
            assert_eq!(parse_object_name(&name), Some(id), "{name}");
            firn_objects::check_name(&name).unwrap();
        }
        let right = object_name(42);
        let hash = &right[4..6];
        for name in [
            IDENTITY,
            OWNER,
            "sst/42",
            "sst/zz/42",
            &format!("sst/{hash}/042"),
            &format!("sst/{hash}/+42"),
            &format!("{right}/1"),
        ] {
            assert_eq!(parse_object_name(name), None, "{name}");
        }
    }
}
