//! What clients are told when something is wrong, to the letter: one file a case in tests/fixtures/errors.
//!
//! `LLMGW_BLESS=1 cargo x test -- golden` writes the files again; what changed is then read as a stranger would read
//! it.

mod cases;

use std::fmt::Write as _;
use std::path::PathBuf;

use llmgw_test_kit::raw::{Connection, Reply};

/// Where the files are.
fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", "errors", &format!("{name}.txt")].iter().collect()
}

/// The answer to these bytes, as it is kept: the request in short, then head and body. What differs from call to call
/// is left out.
fn seen(addr: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut connection = Connection::open(addr).expect("the gateway accepts a connection");
    // It may refuse before all is written.
    let _ = connection.send(bytes);
    let reply = connection.reply().expect("an answer");
    format!("{}\n\n{}", shown(bytes), answer(&reply))
}

/// The request with its control bytes written out, cut where it is long.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        let whole: String = line.trim_end_matches("\r\n").escape_debug().to_string().replace("\\\"", "\"");
        let short: String = whole.chars().take(100).collect();
        let cut = if short.len() < whole.len() { format!(" … {} bytes", line.len()) } else { String::new() };
        lines.push(format!("> {short}{cut}"));
    }
    if lines.len() > 12 {
        let left = lines.len() - 12;
        lines.truncate(12);
        lines.push(format!("> … {left} lines more"));
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

fn answer(reply: &Reply) -> String {
    let mut text = format!("{} {} {}\n", reply.head.version, reply.status, reply.head.reason);
    let varies = ["date", "x-request-id", "x-llmgw-overhead-us", "x-llmgw-queue-ms", "x-llmgw-cache-decision"];
    for (name, value) in &reply.head.headers {
        if !varies.contains(&name.to_ascii_lowercase().as_str()) {
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    let _ = write!(text, "\n{}\n", reply.text().trim_end());
    text
}

/// Holds what is seen against the file of this name, or writes it.
#[track_caller]
fn check(name: &str, seen: &str, faults: &mut Vec<String>) {
    let file = file(name);
    if std::env::var_os("LLMGW_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&file, seen).expect("the file can be written");
        return;
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    if kept != seen {
        faults.push(format!("{}:\nkept:\n{kept}\nseen:\n{seen}", file.display()));
    }
}
