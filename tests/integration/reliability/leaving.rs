//! The gateway told to stop while clients send all the time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use llmgw_test_kit::raw::{self, Connection, Reply};
use llmgw_test_kit::request::Request;
use llmgw_test_kit::{Signal, chat, full_or, wait_for};

use super::rig::Fleet;
use crate::pair::{CHAT, WITHIN};

/// One request on a connection of its own; what fails on the way is an error.
fn try_once(addr: std::net::SocketAddr, bytes: &[u8]) -> std::io::Result<Reply> {
    let mut connection = Connection::open(addr)?;
    connection.send(bytes)?;
    connection.reply()
}

// D6
#[test]
fn clients_that_watch_readiness_lose_nothing_when_the_gateway_stops() {
    let settle = full_or("10s", "2s");
    let mut fleet = Fleet::local(2, "");
    let yaml = format!("timeouts: {{ settle: {settle} }}");
    drop(fleet.gateway);
    let builder = llmgw_test_kit::Gateway::builder().router(&yaml);
    let builder = fleet.engines.iter().fold(builder, |builder, engine| builder.engine(engine));
    fleet.gateway = builder.start(crate::pair::llmgw());

    let (addr, admin) = (fleet.gateway.addr(), fleet.gateway.admin_addr());
    let request = Request::new("POST", CHAT).header("Connection", "close").json(&chat("hello").json()).bytes();
    let is_ready = AtomicBool::new(true);
    let results: Mutex<Vec<std::io::Result<Reply>>> = Mutex::new(Vec::new());
    let count = || results.lock().expect("no client panicked").len();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while is_ready.load(Ordering::Acquire) {
                    let result = try_once(addr, &request);
                    results.lock().expect("no client panicked").push(result);
                }
            });
        }
        // The balancer: asks often, and stops sending when readiness is withdrawn.
        scope.spawn(|| {
            while raw::get(admin, "/readyz").status == 200 {}
            is_ready.store(false, Ordering::Release);
        });
        wait_for("traffic", WITHIN, || count() > 200);
        fleet.gateway.process().signal(Signal::TERM).expect("a signal");
    });
    let results = results.into_inner().expect("no client panicked");
    let failed: Vec<_> =
        results.iter().filter(|result| !result.as_ref().is_ok_and(|reply| reply.status == 200)).collect();
    assert!(failed.is_empty(), "{} of {} failed, the first with {:?}", failed.len(), results.len(), failed[0]);
    // After the settle time.
    let status = fleet.gateway.process().wait(2 * WITHIN).expect("it ends");
    assert!(status.success(), "{status}");
}
