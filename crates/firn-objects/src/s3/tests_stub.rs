//! A server that answers what it is told, and remembers what it was asked.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Serves until it is dropped.
pub struct Stub {
    address: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<VecDeque<(Duration, String)>>,
    requests: Mutex<Vec<String>>,
    ends: Mutex<bool>,
}

impl Stub {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared: Arc<Shared> = Arc::default();
        let serving = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if *serving.ends.lock() {
                    return;
                }
                serving.serve(stream.unwrap());
            }
        });
        Self {
            address,
            shared,
            thread: Some(thread),
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request gets this answer, or the one after those told before.
    pub fn answer(&self, status: &str, body: &str) {
        self.answer_late(Duration::ZERO, status, body);
    }

    /// The same, with a pause before the answer.
    pub fn answer_late(&self, pause: Duration, status: &str, body: &str) {
        let has_body = !status.starts_with("304") && !status.starts_with("204");
        let length = if has_body {
            format!("content-length: {}\r\n", body.len())
        } else {
            String::new()
        };
        let date = "last-modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n";
        let answer = format!("HTTP/1.1 {status}\r\n{length}{date}connection: close\r\n\r\n{body}");
        self.shared.answers.lock().push_back((pause, answer));
    }

    /// The requests so far, with headers in small letters.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.requests.lock())
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        *self.shared.ends.lock() = true;
        // Wakes the thread, which closes its socket.
        TcpStream::connect(&self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        let head = loop {
            let count = stream.read(&mut buffer).unwrap();
            if count == 0 {
                return;
            }
            request.extend_from_slice(&buffer[..count]);
            if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&request[..head]).into_owned();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        while request.len() < head + length {
            let count = stream.read(&mut buffer).unwrap();
            if count == 0 {
                return;
            }
            request.extend_from_slice(&buffer[..count]);
        }
        self.requests.lock().push(text);
        let answer = self.answers.lock().pop_front();
        let no_answer = || (Duration::ZERO, "HTTP/1.1 500 no answer\r\n\r\n".to_owned());
        let (pause, answer) = answer.unwrap_or_else(no_answer);
        std::thread::sleep(pause);
        // The client may have given up.
        let _ = stream.write_all(answer.as_bytes());
    }
}
