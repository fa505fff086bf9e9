//! Programs that tests run on nodes. They are this very executable under another name, so that a test
//! needs nothing that is not there.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

/// The port that all of them use.
pub(crate) const PORT: u16 = 4000;

/// Becomes a program when the arguments name one.
pub(crate) fn dispatch() -> bool {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["bench", dir] => crate::support::run(bench(dir)),
        ["web-server"] => web_server(),
        ["blast", to] => blast(to),
        ["count"] => count(),
        ["echo"] => echo(),
        ["ping", to, count, gap_ms] => {
            ping(
                to,
                count.parse().expect("a count"),
                gap_ms.parse().expect("a gap"),
            );
        }
        ["send", to, bytes] => send(to, bytes.parse().expect("a size")),
        ["receive"] => receive(),
        ["hammer"] => crate::hammer::run(),
        ["inside", how] => crate::inside::run(how),
        ["tamper"] => crate::hammer::tamper(),
        ["lines", count] => lines(count.parse().expect("a count")),
        _ => return false,
    }
    true
}

/// Measures the local backend, as thoroughly as `schism bench cluster` does.
async fn bench(dir: &str) {
    let effort = cluster::bench::Effort::default();
    let report = cluster::bench::run(dir.as_ref(), None, &effort).await;
    print!("{}", report.expect("a report"));
}

fn until_end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::SeqCst);
    });
    ended
}

/// Sends datagrams as fast as it can until its input ends, then says how many.
fn blast(to: &str) {
    let ended = until_end_of_input();
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    println!("ready");
    let mut sent = 0_u64;
    while !ended.load(Ordering::Relaxed) {
        // Sending into a cut must look like sending into the void.
        socket
            .send_to(&sent.to_le_bytes(), (to, PORT))
            .expect("sent");
        sent += 1;
    }
    println!("{sent}");
}

/// Counts datagrams until its input ends, then says how many.
fn count() {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).expect("a socket");
    let received = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&received);
    std::thread::spawn(move || {
        let mut datagram = [0; 64];
        while socket.recv(&mut datagram).is_ok() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    println!("ready");
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .expect("input");
    println!("{}", received.load(Ordering::SeqCst));
}

/// Sends every datagram back.
fn echo() {
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).expect("a socket");
    println!("ready");
    let mut datagram = [0; 2048];
    while let Ok((len, from)) = socket.recv_from(&mut datagram) {
        socket.send_to(&datagram[..len], from).expect("sent");
    }
}

/// Sends a ping every few milliseconds, or all at once, and prints the answers in the order in which
/// they came, as `number:microseconds`.
fn ping(to: &str, count: u64, gap_ms: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect((to, PORT)).expect("an address");
    let wait = Duration::from_millis(500 + gap_ms);
    socket.set_read_timeout(Some(wait)).expect("a timeout");
    let sender = socket.try_clone().expect("a socket");
    std::thread::spawn(move || {
        for number in 0..count {
            let ping = [
                number.to_le_bytes(),
                cluster::clock::monotonic_ns().to_le_bytes(),
            ];
            sender.send(ping.as_flattened()).expect("sent");
            if gap_ms > 0 {
                #[expect(clippy::disallowed_methods, reason = "the pause is the point")]
                std::thread::sleep(Duration::from_millis(gap_ms));
            }
        }
    });
    let mut pong = [[0; 8]; 2];
    let mut line = String::new();
    while socket.recv(pong.as_flattened_mut()).is_ok() {
        let [number, sent_ns] = pong.map(u64::from_le_bytes);
        let rtt_ns = cluster::clock::monotonic_ns() - sent_ns;
        line.push_str(&format!("{number}:{} ", rtt_ns / 1000));
    }
    println!("{line}");
}

/// Sends pseudo-random bytes over TCP and prints their digest.
fn send(to: &str, bytes: usize) {
    let mut socket = TcpStream::connect((to, PORT)).expect("connected");
    let (mut digest, mut state) = (Sha256::new(), 1_u64);
    let mut piece = vec![0; 64 << 10];
    let mut rest = bytes;
    while rest > 0 {
        for word in piece.chunks_exact_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            word.copy_from_slice(&state.to_le_bytes());
        }
        let len = rest.min(piece.len());
        digest.update(&piece[..len]);
        socket.write_all(&piece[..len]).expect("sent");
        rest -= len;
    }
    println!("{bytes} {:x}", digest.finalize());
}

/// Receives one TCP connection to its end and prints the digest of what came.
fn receive() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("a port");
    println!("ready");
    let (mut socket, _) = listener.accept().expect("a connection");
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    let mut piece = vec![0; 256 << 10];
    while let len @ 1.. = socket.read(&mut piece).expect("received") {
        digest.update(&piece[..len]);
        bytes += len;
    }
    println!("{bytes} {:x}", digest.finalize());
}

/// Prints that many short lines, then reads as many and says how many came.
fn lines(count: u64) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for number in 0..count {
        writeln!(out, "{{\"x\":\"ok\",\"id\":{number}}}").expect("written");
    }
    out.flush().expect("written");
    let came = std::io::stdin().lock().lines().take(count as usize).count();
    writeln!(out, "{came}").expect("written");
}

/// A web server that answers with what it was asked, but does not answer `/slow`.
fn web_server() {
    let listener = TcpListener::bind("0.0.0.0:80").expect("a port");
    let mut unanswered = Vec::new();
    for socket in listener.incoming() {
        let mut socket = socket.expect("a connection");
        let (mut asked, mut buffer) = (Vec::new(), [0; 4096]);
        while !asked.ends_with(b"the end") {
            let len = socket.read(&mut buffer).expect("a request");
            asked.extend_from_slice(&buffer[..len]);
        }
        if asked.starts_with(b"POST /slow ") {
            unanswered.push(socket);
            continue;
        }
        let head = format!(
            "HTTP/1.1 418 teapot\r\ncontent-length: {}\r\n\r\n",
            asked.len()
        );
        socket
            .write_all(&[head.as_bytes(), &asked].concat())
            .expect("an answer");
    }
}
