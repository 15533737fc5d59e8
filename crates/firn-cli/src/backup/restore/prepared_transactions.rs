//! Prepared transactions in a restored copy.

use crate::output::hex;
use firn::base::Result;
use firn::binlog::server_xid;
use firn::db::Db;

/// Settles the prepared transactions of a restored copy. Rolls back the server's own transactions,
/// which it prepared as the first phase of their commit: at the restored point they are not
/// committed. XA transactions of clients stay prepared in a whole copy, whatever xid the client
/// gave them. In a copy of some tables they are rolled back, too, because their changes of other
/// tables are missing.
pub fn end_prepared(db: &Db, whole: bool, notes: &mut Vec<String>) -> Result<usize> {
    let mut rolled_back = 0;
    for xid in db.prepared_xids() {
        let servers = server_xid(&xid).is_some();
        if servers || !whole {
            rolled_back += usize::from(db.rollback_xid(&xid)?);
        }
        let state = match whole {
            _ if servers => continue,
            true => "is prepared (XA RECOVER)",
            false => "was prepared, and is rolled back in this copy of some tables",
        };
        notes.push(format!("XA transaction {} {state}", hex(&xid)));
    }
    Ok(rolled_back)
}
