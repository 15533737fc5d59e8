//! Prepared transactions in a restored copy.

use crate::output::hex;
use firn::base::Result;
use firn::db::Db;

/// First bytes of the xids that the server gives to its own transactions. In the image of an xid
/// they stand behind its format id and two lengths, [`XID_HEAD`] bytes.
const SERVER_XID: &[u8] = b"MySQLXid";
const XID_HEAD: usize = 10;

/// Settles the prepared transactions of a restored copy. Rolls back the server's own transactions,
/// which it prepared as the first phase of their commit: at the restored point they are not
/// committed. XA transactions of clients stay prepared in a whole copy. In a copy of some tables
/// they are rolled back, too, because their changes of other tables are missing.
pub fn settle_prepared(db: &Db, whole: bool, notes: &mut Vec<String>) -> Result<usize> {
    let mut rolled_back = 0;
    for xid in db.prepared_xids() {
        let servers = xid
            .get(XID_HEAD..)
            .is_some_and(|data| data.starts_with(SERVER_XID));
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
