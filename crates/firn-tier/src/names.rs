//! Names of objects.

use firn::store::FileId;
use xxhash_rust::xxh3::xxh3_64;

/// The object with the id of the database.
pub const IDENTITY: &str = "db";

/// The object with the token of the process that has used the store last.
pub const OWNER: &str = "owner";

/// The beginning of the names of SSTs.
pub(crate) const SSTS: &str = "sst/";

/// The object of an SST with this checksum: `sst/9f/42-0123456789abcdef`. Stores spread requests
/// over servers by the beginning of names, so a hash stands before the id. A copy of the database,
/// or one that has gone back to an older state, may give the id to other bytes: the checksum keeps
/// such files apart.
pub fn object_name(id: FileId, checksum: u64) -> String {
    format!("{}{checksum:016x}", objects_of(id))
}

/// The beginning of the names of all objects of this id.
pub(crate) fn objects_of(id: FileId) -> String {
    let hash = xxh3_64(&id.to_le_bytes()) & 0xff;
    format!("{SSTS}{hash:02x}/{id}-")
}

/// Id and checksum of an object; `None` if the name is another one.
pub fn parse_object_name(name: &str) -> Option<(FileId, u64)> {
    let (_, rest) = name.strip_prefix(SSTS)?.split_once('/')?;
    let (id, checksum) = rest.split_once('-')?;
    let id = id.parse().ok()?;
    let checksum = u64::from_str_radix(checksum, 16).ok()?;
    (object_name(id, checksum) == name).then_some((id, checksum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_nobodys() {
        for id in [0, 1, 42, 1 << 40, u64::MAX] {
            for checksum in [0, 7, u64::MAX] {
                let name = object_name(id, checksum);
                assert_eq!(parse_object_name(&name), Some((id, checksum)), "{name}");
                assert!(name.starts_with(&objects_of(id)));
                firn_objects::check_name(&name).unwrap();
            }
        }
        assert!(!object_name(421, 0).starts_with(&objects_of(42)));
        let right = object_name(42, 0);
        let hash = &right[4..6];
        for name in [
            IDENTITY,
            OWNER,
            "sst/42",
            "sst/zz/42",
            &format!("sst/{hash}/42"),
            &format!("sst/{hash}/042-0000000000000000"),
            &format!("sst/{hash}/+42-0000000000000000"),
            &format!("sst/{hash}/42-000000000000000"),
            &format!("sst/{hash}/42-00000000000000000"),
            &format!("{right}/1"),
        ] {
            assert_eq!(parse_object_name(name), None, "{name}");
        }
    }
}
