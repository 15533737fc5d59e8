use super::kit::*;
use crate::keycode::*;

#[test]
fn senseless_parts_are_refused() {
    let int = || part(PartKind::Int { signed: true }, PartSource::Fixed, 4);
    let refused = |part: KeyPart| KeyCodec::new(20, vec![part]).is_err();
    assert!(!refused(int()));
    assert!(refused(KeyPart { len: 5, ..int() }));
    assert!(refused(KeyPart {
        offset: 17,
        ..int()
    }));
    assert!(refused(KeyPart {
        prefix: Some(2),
        ..int()
    }));
    assert!(refused(KeyPart {
        image_len: 8,
        ..int()
    }));
    assert!(refused(KeyPart {
        null: Some(NullBit {
            offset: 20,
            mask: 1
        }),
        ..int()
    }));
    let blob = part(PartKind::VarBytes, PartSource::Blob { len_bytes: 2 }, 0);
    assert!(refused(blob.clone()));
    assert!(!refused(KeyPart {
        prefix: Some(3),
        image_len: 3,
        ..blob
    }));
    assert!(refused(part(PartKind::VarBytes, PartSource::Fixed, 4)));
    assert!(KeyCodec::new(20, Vec::new()).is_err());
}

#[test]
fn the_longest_key_is_known_where_it_is_bounded() {
    let max = |part: KeyPart| KeyCodec::new(400, vec![part]).unwrap().max_len();
    let mut int = part(PartKind::Int { signed: true }, PartSource::Fixed, 8);
    assert_eq!(max(int.clone()), Some(8));
    int.null = Some(NullBit { offset: 0, mask: 1 });
    assert_eq!(max(int), Some(9));
    let varchar = PartSource::VarChar { len_bytes: 2 };
    let bytes = part(PartKind::VarBytes, varchar, 300);
    assert_eq!(max(bytes.clone()), Some(601));
    assert_eq!(encode(&bytes, Some(&[0; 300])).len(), 601);
    let rules = |simple, weight_len| Rules {
        weight_len,
        levels: 1,
        no_pad: false,
        char_filled: false,
        form: TextForm::Lost,
        simple,
    };
    let latin = part(PartKind::Text(collation(&rules(true, 1))), varchar, 100);
    assert_eq!(max(latin.clone()), Some(202));
    assert!(encode(&latin, Some(&[b' '; 100])).len() <= 202);
    let mut spaces = [b' '; 100];
    spaces[99] = b'x';
    assert!(encode(&latin, Some(&spaces)).len() <= 202);
    let wide = part(PartKind::Text(collation(&rules(true, 2))), varchar, 100);
    let bound = max(wide.clone()).unwrap();
    assert!(encode(&wide, Some(&[0xff; 100])).len() <= bound);
    assert_eq!(
        max(part(
            PartKind::Text(collation(&rules(false, 2))),
            varchar,
            100
        )),
        None
    );
}
