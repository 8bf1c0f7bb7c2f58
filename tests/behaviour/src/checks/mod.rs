//! The checks, one file a field, in the order of the report.

mod bytes;
mod cancel;
mod death;
mod errors;
mod extras;
mod framing;
mod headers;
mod keepalive;
mod keys;
mod limits;
mod pressure;
mod responses;
mod retry;
mod smuggling;
mod streams;

use crate::check::Check;

/// Every check there is.
pub(crate) fn all() -> Vec<Check> {
    let fields = [
        framing::CHECKS,
        smuggling::CHECKS,
        responses::CHECKS,
        headers::CHECKS,
        bytes::CHECKS,
        streams::CHECKS,
        limits::CHECKS,
        cancel::CHECKS,
        pressure::CHECKS,
        keepalive::CHECKS,
        death::CHECKS,
        retry::CHECKS,
        errors::CHECKS,
        extras::CHECKS,
        keys::CHECKS,
    ];
    fields.concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let all = super::all();
        let names: BTreeSet<_> = all.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
