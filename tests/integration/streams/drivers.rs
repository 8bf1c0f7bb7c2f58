//! The main trials once more on each driver by name, so that neither is only what the other is measured by.

use super::rig::Rig;
use super::{bytes, cut, pace, protocol, usage};

fn check_main_trials(driver: &str) {
    let trials: [fn(&Rig); 7] = [
        bytes::check_text_cut_at_every_byte,
        |rig| bytes::check_usage_event_cut_anywhere(rig, 10),
        cut::check_engines_that_break_off,
        pace::check_everything_passes_at_once,
        pace::check_a_client_that_stops_reading,
        protocol::check_one_connection_carries_many_requests,
        usage::check_every_form_of_the_usage_option,
    ];
    for trial in trials {
        let mut rig = Rig::on(driver);
        let word = if driver == "epoll" { "epoll" } else { "io_uring" };
        let said = rig.gateway.process().lines().iter().any(|line| line.text.contains(word));
        assert!(said, "the gateway runs on {driver}");
        trial(&rig);
        rig.finish();
    }
}

#[test]
fn the_main_trials_hold_on_epoll() {
    check_main_trials("epoll");
}

#[test]
fn the_main_trials_hold_on_io_uring() {
    check_main_trials("io-uring");
}
