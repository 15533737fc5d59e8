use super::*;

fn tcp(host: &str, port: u16, weight: u32) -> NodeSpec {
    NodeSpec {
        address: Address::Tcp(host.into(), port),
        weight,
    }
}

#[test]
fn a_list_of_all_kinds() {
    let nodes =
        parse_nodes("Cache-1.example:11211 * 20,10.0.0.2:1, [FD00::0:7]:65535*3 ,unix:/run/a*b*7");
    let unix = NodeSpec {
        address: Address::Unix("/run/a*b".into()),
        weight: 7,
    };
    let expected = vec![
        tcp("cache-1.example", 11211, 20),
        tcp("10.0.0.2", 1, 1),
        tcp("fd00::7", 65535, 3),
        unix,
    ];
    assert_eq!(nodes, Ok(expected));
    assert_eq!(parse_nodes("  "), Ok(vec![]));
}

#[test]
fn an_address_prints_as_it_parses() {
    for text in [
        "a:1",
        "[fd00::7]:2",
        "unix:/run/x",
        "tls:a:1",
        "tls:[fd00::7]:2",
        "tls:3",
    ] {
        assert_eq!(parse_nodes(text).unwrap()[0].address.to_string(), text);
    }
}

#[test]
fn bad_lists_say_what_is_wrong() {
    let long = format!("unix:/{}", "x".repeat(200));
    let many = (1..=65)
        .map(|n| format!("a:{n}"))
        .collect::<Vec<_>>()
        .join(",");
    let cases = [
        ("a", "the port is missing"),
        ("a:0", "the port is no number"),
        ("a:65536", "the port is no number"),
        ("a:b", "the port is no number"),
        (":11211", "no host name"),
        ("a b:1", "no host name"),
        ("a/b:1", "no host name"),
        ("a:1,,b:1", "a node is empty"),
        ("a:1,", "a node is empty"),
        ("a:1*0", "the weight '0'"),
        ("a:1*-1", "the weight '-1'"),
        ("a:1*x", "the weight 'x'"),
        ("a:1*", "the weight ''"),
        ("a:1*1000001", "the weight"),
        ("fd00::7:1", "in brackets"),
        ("[fd00::g]:1", "no IPv6 address"),
        ("[fd00::7]", "port"),
        ("unix:run", "absolute path"),
        ("unix:", "absolute path"),
        (long.as_str(), "absolute path"),
        ("tls:a:x", "the port"),
        ("tls:fd00::7:1", "in brackets"),
        ("tls:unix:/a", "the port"),
        ("TLS:a:1", "in brackets"),
        ("tls:a:1,tls:A:1", "listed twice"),
        ("A:1,b:1,a:1*2", "listed twice"),
        (many.as_str(), "65 nodes"),
    ];
    for (text, part) in cases {
        let error = parse_nodes(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}
