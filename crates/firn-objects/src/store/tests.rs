use super::*;

#[test]
fn names_are_paths_without_tricks() {
    for good in ["db", "sst/ab/123", "blob/00/1-2", "tree/1-2.zst", "A_b-c.d"] {
        assert!(check_name(good).is_ok(), "{good}");
    }
    let long = "a".repeat(201);
    for bad in [
        "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.b", "a,b", "a b", "a%2f",
        "ä", "a\0", &long,
    ] {
        let error = check_name(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
    }
}

#[test]
fn pages_follow_each_other_to_the_end() {
    let page = |token: Option<&str>| {
        let from: usize = token.map_or(0, |token| token.parse().unwrap());
        Ok(Page {
            items: (from..(from + 3).min(8)).collect(),
            next: (from + 3 < 8).then(|| (from + 3).to_string()),
        })
    };
    let mut all = Vec::new();
    for_each_page(page, |item| all.push(item)).unwrap();
    assert_eq!(all, (0..8).collect::<Vec<usize>>());
}

#[test]
fn a_list_that_does_not_go_on_is_an_error() {
    let page = |_: Option<&str>| {
        Ok(Page {
            items: vec![1],
            next: Some("same".to_owned()),
        })
    };
    let error = for_each_page(page, |_: i32| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let range = Range { start: 5, end: 4 };
    let error = check_len("a", &range, Bytes::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
