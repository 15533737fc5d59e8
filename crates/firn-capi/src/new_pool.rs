//! Makes the memory pool of a server, and reads its key.

use firn::base::event_listener::{EventListener, Severity};
use firn::base::{Error, checksum};
use firn::db::MemoryPool;
use firn::env::{Env, PosixEnv, ReadClass};
use firn_pool::{Key, Options, Pool, SystemLink, TlsFiles};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// A key file is never longer: 64 digits and some space.
const KEY_FILE_LEN_MAX: u64 = 1024;

/// Reads the key of the pool from the file at `path`, which nobody but its owner may read or write.
fn read_key(path: &Path) -> Result<Key, Error> {
    let failed = |what: &dyn std::fmt::Display| {
        Error::invalid(format_args!(
            "firn_pool_key_file '{}': {what}",
            path.display()
        ))
    };
    let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("others than its owner may use it (mode {mode:03o}); chmod 600 it");
        return Err(failed(&what));
    }
    if !metadata.is_file() || metadata.len() > KEY_FILE_LEN_MAX {
        return Err(failed(&"this is no key file"));
    }
    let mut bytes = vec![0; metadata.len() as usize];
    let file = PosixEnv::new().open(path)?;
    file.read_exact_at(ReadClass::Log, 0, &mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| failed(&"this is no key file"))?;
    Key::parse(&text).map_err(|error| failed(&error))
}

/// Files that the pool of a server reads at the start.
pub(crate) struct PoolFiles<'a> {
    pub(crate) key: Option<&'a Path>,
    pub(crate) tls_ca: Option<&'a Path>,
    pub(crate) tls_cert: Option<&'a Path>,
    pub(crate) tls_key: Option<&'a Path>,
}

/// A pool for the server `server`, a name that stays the same over restarts. It is off and has no
/// nodes. If there is a key file, its values are encrypted.
pub(crate) fn new_pool(
    server: &str,
    files: &PoolFiles<'_>,
    listener: &Arc<dyn EventListener>,
) -> Result<MemoryPool, Error> {
    let named = |path: Option<&'_ Path>| {
        path.filter(|path| !path.as_os_str().is_empty())
            .map(Path::to_path_buf)
    };
    let tls = TlsFiles {
        ca: named(files.tls_ca),
        certificate: named(files.tls_cert),
        key: named(files.tls_key),
    };
    let link = SystemLink::with_tls(&tls);
    let link = link.map_err(|error| Error::invalid(format_args!("firn_pool_tls: {error}")))?;
    let key_file = named(files.key);
    let options = Options {
        key: key_file.as_deref().map(read_key).transpose()?,
        ..Options::new(checksum::xxh3(server.as_bytes()))
    };
    let listener = Arc::clone(listener);
    let log = move |message: &str| {
        listener.log(Severity::Note, &format!("memory pool: {message}"));
    };
    let link = Arc::new(link);
    let clock: Arc<SystemLink> = Arc::clone(&link);
    let pool = Pool::new(options, link, clock, Arc::new(log))
        .map_err(|error| Error::io(&error, "make the memory pool"))?;
    Ok(MemoryPool::new(pool))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};

    #[test]
    fn a_key_file_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let write = |text: &str, mode| {
            let mut file = PosixEnv::new().create(&path).unwrap();
            file.append(text.as_bytes()).unwrap();
            file.sync().unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let message = |path: &Path| read_key(path).err().map(|error| error.message().to_owned());
        assert!(message(&path).unwrap().contains("No such file"));
        write(&format!("{}\n", "5a".repeat(32)), 0o600);
        assert_eq!(message(&path), None);
        for mode in [0o640, 0o604, 0o622] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(message(&path).unwrap().contains("chmod 600"), "{mode:o}");
        }
        write("secret", 0o600);
        let text = message(&path).unwrap();
        assert!(text.contains("64 hexadecimal digits") && !text.contains("secret"));
        write(&"a".repeat(2000), 0o600);
        assert!(message(&path).unwrap().contains("no key file"));
        assert!(message(dir.path()).is_some());
    }
}
