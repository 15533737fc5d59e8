//! Recognizes the xids that the server gives to its own transactions.

/// The first bytes of the server's own xids.
const PREFIX: &[u8] = b"MySQLXid";

/// The number in an xid that the server has given to one of its own transactions; `None` if a
/// client has chosen the xid.
///
/// `image` is an xid as the handler writes it (`mariadb/xa.h`): format id, 8 bytes; lengths of its
/// two parts, a byte each; the parts. The server's own xid has one part: the prefix, the server id
/// and the number, both in native byte order.
pub fn server_xid(image: &[u8]) -> Option<u64> {
    let [first, second] = *image.get(8..10)?.first_chunk::<2>()?;
    let name = image.get(10..)?;
    let server_id = name.len().checked_sub(PREFIX.len() + 8)?;
    let ours = usize::from(first) == name.len()
        && second == 0
        && matches!(server_id, 4 | 8)
        && name.starts_with(PREFIX);
    let number = u64::from_ne_bytes(*name.last_chunk::<8>()?);
    (ours && number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::server_xid;
    use crate::binlog::testing::xid_image;

    #[test]
    fn the_server_names_its_own() {
        assert_eq!(server_xid(&xid_image(7)), Some(7));
        assert_eq!(server_xid(&xid_image(u64::MAX)), Some(u64::MAX));
    }

    #[test]
    fn clients_name_the_others() {
        assert_eq!(server_xid(&xid_image(0)), None);
        let mut image = xid_image(7);
        image[10] = b'm';
        assert_eq!(server_xid(&image), None);
        let mut image = xid_image(7);
        image[9] = 1;
        assert_eq!(server_xid(&image), None);
        let mut image = xid_image(7);
        image.pop();
        assert_eq!(server_xid(&image), None);
        for len in 0..11 {
            assert_eq!(server_xid(&vec![0; len]), None);
        }
        assert_eq!(server_xid(b"\x01\0\0\0\0\0\0\0\x02\0x1"), None);
    }
}
