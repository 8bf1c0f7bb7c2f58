//! The admin address is there for those who ask, whoever else is connected to it.

use std::io;

use llmgw_test_kit::raw::{Closed, Connection};
use llmgw_test_kit::request::Request;

use crate::pair::Pair;

/// Connections that it serves at once.
const BOUND: usize = 64;

fn ask(connection: &mut Connection) -> u16 {
    connection.send(&Request::new("GET", "/healthz").bytes()).expect("sent");
    connection.reply().expect("an answer").status
}

#[test]
fn silent_connections_give_way_to_one_that_asks_the_longest_silent_first() {
    let pair = Pair::own();
    let open = || Connection::open(pair.gateway.admin_addr()).expect("a connection");
    // Each is known to be accepted before the next: those that asked wait from their answer on.
    let mut kept: Vec<Connection> = Vec::new();
    for _ in 0..BOUND {
        let mut connection = open();
        assert_eq!(ask(&mut connection), 200);
        kept.push(connection);
    }
    assert_eq!(ask(&mut kept[0]), 200, "the first is now the one that asked last");
    let silent: Vec<Connection> = (0..3 * BOUND).map(|_| open()).collect();
    assert_eq!(pair.gateway.admin("/readyz").status, 200, "nobody held the door shut");
    for connection in &mut kept {
        assert!(matches!(connection.wait_for_close(), Ok(Closed::Fin | Closed::Reset)), "silent for longest");
    }
    let mut newest = silent.into_iter().next_back().expect("one of many");
    newest.set_patience(std::time::Duration::from_millis(50));
    assert!(newest.wait_for_close().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut), "it has its turn yet");
}

#[test]
fn one_that_asked_stays_while_others_are_silent_for_longer() {
    let pair = Pair::own();
    let open = || Connection::open(pair.gateway.admin_addr()).expect("a connection");
    let mut asking = open();
    let mut silent: Vec<Connection> = Vec::new();
    for _ in 0..3 * BOUND {
        silent.push(open());
        assert_eq!(ask(&mut asking), 200, "{} others", silent.len());
    }
    assert!(matches!(silent[0].wait_for_close(), Ok(Closed::Fin | Closed::Reset)));
}
