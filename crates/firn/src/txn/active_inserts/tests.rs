use super::*;
use crate::base::{Error, Value};

const INDEX: IndexId = 7;

fn key(n: u8) -> Vec<u8> {
    [&INDEX.to_be_bytes()[..], &[n]].concat()
}

/// A search that chose its sources before the set changed may have missed keys.
#[test]
fn a_search_is_repeated_when_the_set_has_changed() {
    let writes = SharedWriteSet::new(1 << 20, None);
    let mut searches = 0;
    let found = while_it_stays(&writes, || {
        searches += 1;
        match searches {
            1 => {
                writes.lock().clear();
                Ok(None)
            }
            2 => {
                writes.lock().clear();
                Err(Error::invalid("the file is gone"))
            }
            _ => Ok(Some(key(1))),
        }
    });
    assert_eq!(found.unwrap(), Some(key(1)));
    assert_eq!(searches, 3);
}

/// The keys of a prepared transaction are found while its session ends: the search has copied the
/// list before, and meets the write set after it is cleared.
#[test]
fn a_search_finds_the_keys_of_a_transaction_that_leaves_its_session() {
    let inserts = ActiveInserts::new();
    let owner = LockOwner::new(1, 0);
    let writes = SharedWriteSet::new(1 << 20, None);
    writes.lock().put(&key(5), Value::EMPTY).unwrap();
    inserts.add(INDEX, &owner, &writes);
    let (lower, upper) = (key(0), key(9));
    let mut searches = 0;
    let found = inserts.while_none_leaves(INDEX, || {
        searches += 1;
        let mut others = inserts.others(INDEX, &LockOwner::new(2, 0));
        if searches == 1 {
            let bits = ActiveInserts::bit_of(INDEX);
            inserts.leave_session(bits, &owner, vec![key(5).into()]);
            writes.lock().clear();
        }
        let keys = others.pop().expect("one transaction");
        keys.find(&lower, &upper, Nearest::Smallest)
    });
    assert_eq!(found.unwrap(), Some(key(5)));
    assert_eq!(searches, 2);
}
