//! Routing profiles: the built-in ones, those of the file over them, and what of them this version can do.

use crate::availability;
use crate::config::{PickerConfig, RoutingProfileConfig, ScoreConfig};
use crate::error::Place;
use crate::read::{Field, Reader, hint, read_default};
use crate::server::{PickerKind, Profile, Router};
use crate::values::{Named, one_of};

/// Every scorer there is or will be, by the name used in the file.
const SCORERS: [&str; 8] = ["queue", "kv", "prefix", "load", "inflight", "pool-priority", "session", "lora"];

/// The most routing profiles of one file.
const PROFILE_COUNT_MAX: usize = 64;

/// `chat` may also be written so.
const CHAT_BY_WEIGHTS: &str = "{ scorers: { prefix: 3.0, queue: 1.0, kv: 1.0, inflight: 1.0 }, picker: { type: p2c } }";

/// All profiles, the file's in place of the built-in ones of the same name.
pub(super) fn check(written: &Field<Named<Profile>>, reader: &mut Reader) -> Vec<RoutingProfileConfig> {
    let built_in = read_default::<Router>("{}").map(|router| router.profiles.value.0).unwrap_or_default();
    if written.0.len() > PROFILE_COUNT_MAX {
        reader.problem(&written.place, format!("router.profiles: at most {PROFILE_COUNT_MAX} profiles are taken"));
    }
    for (name, profile) in written.0.iter().take(PROFILE_COUNT_MAX) {
        super::check_name(name, "router.profiles", reader);
        let path = format!("router.profiles.{}", name.value);
        let is_sound = check_one(&path, profile, reader);
        if !is_sound || written.place == Place::Default {
            continue;
        }
        let is_built_in = built_in.iter().any(|(other, as_built)| *other == *name && is_same(as_built, profile))
            || (name.value == "chat" && read_default(CHAT_BY_WEIGHTS).is_some_and(|chat| is_same(&chat, profile)));
        if !is_built_in {
            check_availability(&path, profile, reader);
        } else if !is_available(profile) {
            reader.no_effect(&name.place, path, availability::NO_EFFECT);
        }
    }
    let names: Vec<&str> = written.0.iter().map(|(name, _)| name.as_str()).collect();
    let kept = built_in.iter().filter(|(name, _)| !names.contains(&name.as_str()));
    kept.chain(&written.0).map(|(name, profile)| config(name, profile)).collect()
}

/// A profile that is named must be there, and its picker too.
pub(super) fn check_reference(
    path: &str,
    name: &Field<String>,
    profiles: &[RoutingProfileConfig],
    reader: &mut Reader,
) {
    match profiles.iter().find(|profile| profile.name == name.value) {
        None if reader.has_lost_items => {}
        None => {
            let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
            let hint = hint(name, &names);
            let end = if hint.is_empty() { format!("; expected {}", one_of(&names)) } else { hint };
            reader.problem(&name.place, format!("{path}: no routing profile is called {:?}{end}", name.value));
        }
        Some(_) => {}
    }
}

fn check_one(path: &str, profile: &Field<Profile>, reader: &mut Reader) -> bool {
    let before = reader.problems.len();
    if let (Some(_), Some(_)) = (&profile.cost.value, &profile.scorers.value) {
        reader.problem(&profile.scorers.place, format!("{path}: cost and scorers are both given; keep one"));
    }
    for (name, _) in profile.scorers.value.iter().flat_map(|scorers| &scorers.0) {
        if !SCORERS.contains(&name.as_str()) {
            let hint = hint(name, &SCORERS);
            let end = if hint.is_empty() { format!("; expected {}", one_of(&SCORERS)) } else { hint };
            reader.problem(&name.place, format!("{path}.scorers: no scorer is called {:?}{end}", name.value));
        }
    }
    let picker = &profile.picker;
    if picker.temperature.is_some() && picker.kind.value != PickerKind::Softmax {
        let message = format!("{path}.picker.temperature: only softmax has one; leave it out");
        reader.problem(&picker.temperature.place, message);
    }
    reader.problems.len() == before
}

/// What the profile says, in an order of its own: files may write scorers in any.
fn is_same(one: &Profile, other: &Profile) -> bool {
    let sorted = |profile: &Profile| {
        let mut weights = match config("", profile).score {
            ScoreConfig::Cost { w_overlap } => vec![("cost".to_owned(), w_overlap)],
            ScoreConfig::Weighted(weights) => weights,
        };
        weights.sort_by(|a, b| a.0.cmp(&b.0));
        weights
    };
    sorted(one) == sorted(other) && config("", one).picker == config("", other).picker
}

fn absent_scorers(profile: &Profile) -> impl Iterator<Item = &Field<String>> {
    let weights = profile.scorers.value.iter().flat_map(|scorers| &scorers.0);
    weights
        .filter(|(name, weight)| weight.as_f64() > 0.0 && !availability::SCORERS.contains(&name.as_str()))
        .map(|(name, _)| name)
}

fn is_available(profile: &Profile) -> bool {
    absent_scorers(profile).next().is_none()
}

fn check_availability(path: &str, profile: &Field<Profile>, reader: &mut Reader) {
    let here = |place: &Place| if *place == Place::Default { profile.place.clone() } else { place.clone() };
    for name in absent_scorers(profile) {
        let message = format!(
            "{path}.scorers: {:?} is not available in this version; leave it out, or give it the weight 0",
            name.value
        );
        reader.problem(&here(&name.place), message);
    }
}

fn config(name: &str, profile: &Profile) -> RoutingProfileConfig {
    let score = match (&profile.cost.value, &profile.scorers.value) {
        (Some(cost), _) => ScoreConfig::Cost { w_overlap: cost.w_overlap.as_f64() },
        (None, Some(scorers)) => ScoreConfig::Weighted(
            scorers.0.iter().map(|(name, weight)| (name.value.clone(), weight.as_f64())).collect(),
        ),
        (None, None) => ScoreConfig::Weighted(Vec::new()),
    };
    let picker = PickerConfig {
        kind: profile.picker.kind.value,
        temperature: profile.picker.temperature.value.map_or(0.0, |temperature| temperature.as_f64()),
    };
    RoutingProfileConfig { name: name.to_owned(), score, picker }
}
