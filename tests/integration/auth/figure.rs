//! How long it takes until a revoked key is refused on every core. The event is asserted, the time is only told:
//!
//! `cargo test --profile ci -p llmgw --test integration -- until_a_revoked --nocapture`

use std::time::{Duration, Instant};

use llmgw_test_kit::raw::Connection;
use llmgw_test_kit::request::Request;
use llmgw_test_kit::wait_for;
use serde_json::Value;

use super::rig::Rig;
use crate::pair::WITHIN;

/// Keys revoked in each way.
const ROUNDS: usize = 10;
/// Connections, of which each core has some.
const CONNECTIONS: usize = 16;

#[expect(clippy::print_stdout, reason = "a figure is told")]
#[test]
fn the_time_until_a_revoked_key_is_refused_on_every_core() {
    let rig = Rig::start();
    for (way, by_other) in [("over the admin API", false), ("by another process, on the store's file", true)] {
        let times: Vec<Duration> =
            (0..ROUNDS).map(|round| revoked(&rig, &format!("{by_other}-{round}"), by_other)).collect();
        let (most, all) = (times.iter().max().copied().unwrap_or_default(), times.iter().sum::<Duration>());
        let mean = all / ROUNDS as u32;
        println!(
            "revoked {way}: refused on all of {CONNECTIONS} connections after {mean:.0?} (mean), {most:.0?} (most)"
        );
    }
    rig.gateway.finish(&[]);
}

/// From the moment a revocation is on the record to the last connection's refusal.
fn revoked(rig: &Rig, name: &str, by_other: bool) -> Duration {
    let key = rig.key(name, Value::Null);
    let ask = Request::new("GET", "/v1/models").header("x-api-key", &key).bytes();
    let mut connections: Vec<Connection> =
        (0..CONNECTIONS).map(|_| Connection::open(rig.gateway.addr()).expect("a connection")).collect();
    let mut all_say = |status: u16| {
        connections.iter_mut().for_each(|connection| connection.send(&ask).expect("sent"));
        let replies = connections.iter_mut().map(|connection| connection.reply().expect("an answer").status);
        replies.filter(|found| *found == status).count() == CONNECTIONS
    };
    wait_for("the key on every core", WITHIN, || all_say(200));
    if by_other {
        rig.offline(&["revoke", name]);
    } else {
        rig.admin(&format!("POST /keys/{name}/revoke"), &Value::Null);
    }
    let from = Instant::now();
    wait_for("a refusal on every connection", WITHIN, || all_say(401));
    from.elapsed()
}
