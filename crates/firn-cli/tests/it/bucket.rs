//! Backups in a bucket: a small server of the S3 protocol, with the requests that the client makes.

use super::support::{World, json_with, open, read};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A bucket called `b`, served on a port of its own.
struct Bucket {
    objects: Objects,
    port: u16,
}

impl Bucket {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let objects = Objects::default();
        let served = Arc::clone(&objects);
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let objects = Arc::clone(&served);
                std::thread::spawn(move || serve(stream.unwrap(), &objects));
            }
        });
        Self { objects, port }
    }

    fn firn(&self, args: &[&str]) -> (i32, serde_json::Value) {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let environment = [
            ("AWS_ENDPOINT", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
            ("AWS_REGION", "eu"),
        ];
        json_with(args, &environment)
    }
}

fn serve(stream: TcpStream, objects: &Objects) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split_whitespace();
    let (method, url) = (
        words.next().unwrap().to_owned(),
        words.next().unwrap().to_owned(),
    );
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |l| l.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    let key = decoded(path.strip_prefix("/b").unwrap().trim_start_matches('/'));
    let (status, extra, answer) = answer(&method, &key, query, &headers, body, objects);
    let len = match method.as_str() {
        "HEAD" => extra.len_of_head.unwrap_or(0),
        _ => answer.len(),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len}\r\nETag: \"e\"\r\n\
         Last-Modified: Wed, 01 Jul 2026 00:00:00 GMT\r\n{}\r\n",
        extra.header
    );
    let _ = stream.write_all(head.as_bytes());
    if method != "HEAD" {
        let _ = stream.write_all(&answer);
    }
}

#[derive(Default)]
struct ResponseHead {
    header: String,
    len_of_head: Option<usize>,
}

fn answer(
    method: &str,
    key: &str,
    query: &str,
    headers: &BTreeMap<String, String>,
    body: Vec<u8>,
    objects: &Objects,
) -> (&'static str, ResponseHead, Vec<u8>) {
    let mut objects = objects.lock().unwrap();
    let none = ResponseHead::default;
    match method {
        "GET" if query.contains("list-type=2") => ("200 OK", none(), list(query, &objects)),
        "PUT" if headers.contains_key("if-none-match") && objects.contains_key(key) => {
            ("412 Precondition Failed", none(), Vec::new())
        }
        "PUT" => {
            objects.insert(key.to_owned(), body);
            ("200 OK", none(), Vec::new())
        }
        "POST" if query.starts_with("delete") => {
            let mut xml = String::from("<DeleteResult>");
            for part in String::from_utf8(body).unwrap().split("<Key>").skip(1) {
                let key = part.split("</Key>").next().unwrap();
                objects.remove(key);
                xml += &format!("<Deleted><Key>{key}</Key></Deleted>");
            }
            ("200 OK", none(), (xml + "</DeleteResult>").into_bytes())
        }
        "DELETE" => {
            objects.remove(key);
            ("204 No Content", none(), Vec::new())
        }
        "HEAD" | "GET" => match objects.get(key) {
            None => ("404 Not Found", none(), Vec::new()),
            Some(bytes) => {
                let mut extra = ResponseHead {
                    len_of_head: Some(bytes.len()),
                    ..none()
                };
                let Some(range) = headers.get("range") else {
                    return ("200 OK", extra, bytes.clone());
                };
                let (from, to) = range
                    .strip_prefix("bytes=")
                    .unwrap()
                    .split_once('-')
                    .unwrap();
                let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
                let to = to.min(bytes.len() - 1);
                extra.header = format!("Content-Range: bytes {from}-{to}/{}\r\n", bytes.len());
                ("206 Partial Content", extra, bytes[from..=to].to_vec())
            }
        },
        _ => ("501 Not Implemented", none(), Vec::new()),
    }
}

fn list(query: &str, objects: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let prefix = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("prefix="));
    let prefix = decoded(prefix.unwrap_or_default());
    let mut xml = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (key, bytes) in objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        xml += &format!(
            "<Contents><Key>{key}</Key><Size>{}</Size><ETag>e</ETag>\
             <LastModified>2026-07-01T00:00:00.000Z</LastModified></Contents>",
            bytes.len()
        );
    }
    (xml + "</ListBucketResult>").into_bytes()
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        out.push(char::from(u8::from_str_radix(&part[..2], 16).unwrap()));
        out += &part[2..];
    }
    out
}

#[test]
fn a_bucket_holds_backups_as_a_directory_does() {
    let bucket = Bucket::new();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("db");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let mut world = World::create(&source, 5);
    world.write(1000);
    world.db.compact_all().unwrap();
    world.write(100);
    world.db.close().unwrap();
    let rows = world.rows.clone();
    drop(world);
    let target = "s3://b/some/prefix";
    let from = text(&source);
    for round in 0..2 {
        let (code, report) = bucket.firn(&["backup", target, "--from-dir", &from]);
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["sent_files"] == 0, round == 1, "{report}");
    }
    let names: Vec<String> = bucket.objects.lock().unwrap().keys().cloned().collect();
    assert!(
        names.iter().all(|name| name.starts_with("some/prefix/")),
        "{names:?}"
    );
    assert!(
        !names.iter().any(|name| name.contains("/running/")),
        "{names:?}"
    );
    let (code, listed) = bucket.firn(&["backups", target]);
    assert_eq!((code, listed.as_array().unwrap().len()), (0, 2), "{listed}");
    let (code, pruned) = bucket.firn(&["prune", target, "--keep", "1"]);
    assert_eq!((code, &pruned["removed_files"]), (0, &0.into()), "{pruned}");
    assert_eq!(bucket.firn(&["backup", "--verify", target]).0, 0);
    let to = dir.path().join("to");
    let (code, report) = bucket.firn(&["restore", target, "--to", &text(&to)]);
    assert_eq!(code, 0, "{report}");
    assert!(read(&open(&to.join("#firn")).unwrap()).unwrap() == rows);

    let object = names.iter().find(|name| name.contains(".sst-")).unwrap();
    bucket.objects.lock().unwrap().get_mut(object).unwrap()[3] ^= 1;
    assert_eq!(bucket.firn(&["backup", "--verify", target]).0, 1);
}
