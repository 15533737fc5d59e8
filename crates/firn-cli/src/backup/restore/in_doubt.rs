//! Prepared transactions in a restored copy.

use crate::output::hex;
use firn::base::Result;
use firn::db::Db;

/// How the xids of the server's own transactions begin, behind their lengths.
const SERVER_XID: &[u8] = b"MySQLXid";
const XID_HEAD: usize = 10;

/// Transactions that the server was about to commit are none at the point; those of XA wait for
/// their outcome. In a copy of some tables they do not: what they have changed in the others is not
/// there to be committed.
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
