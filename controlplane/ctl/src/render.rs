//! Answers as people read them: tables with a head line, and sentences. Pure: text from values.

use serde_json::Value;

use crate::reply::{Audit, Copied, Drained, Endpoint, Endpoints, Reloaded, Rows, Setting};
use crate::when::moment;

/// One line an endpoint.
pub(crate) fn endpoints(answer: &Endpoints) -> String {
    let head = ["NAME", "STATE", "IN FLIGHT", "POOL", "PRIORITY", "WEIGHT", "ENGINE", "MODELS", "URL"];
    let mut rows = vec![head.map(str::to_owned)];
    for endpoint in &answer.endpoints {
        rows.push([
            endpoint.name.clone(),
            state(endpoint),
            endpoint.in_flight.to_string(),
            endpoint.pool.clone(),
            endpoint.priority.to_string(),
            endpoint.weight.to_string(),
            endpoint.engine.clone(),
            endpoint.models.join(","),
            endpoint.url.clone(),
        ]);
    }
    let ready = answer.endpoints.iter().filter(|endpoint| endpoint.state == "ready").count();
    format!("{}{ready} of {} take requests\n", table(&rows), answer.endpoints.len())
}

/// `ready`, `not ready`, `draining`; with what else keeps requests away.
fn state(endpoint: &Endpoint) -> String {
    let mut text = endpoint.state.replace('_', " ");
    if endpoint.is_draining && !endpoint.is_ready {
        text.push_str(", not ready");
    }
    if endpoint.breaker != "closed" {
        text.push_str(", breaker ");
        text.push_str(&endpoint.breaker.replace('_', " "));
    }
    text
}

/// What an endpoint's drain came to.
pub(crate) fn drained(answer: &Drained) -> String {
    let Endpoint { name, in_flight, is_draining, is_ready, .. } = &answer.endpoint;
    match (is_draining, is_ready) {
        (true, _) if *in_flight > 0 => {
            let requests = if *in_flight == 1 { "request runs" } else { "requests run" };
            format!("{name} is draining: it gets no new requests; {in_flight} {requests} to the end\n")
        }
        (true, _) => format!("{name} is draining: it gets no new requests, and none is running\n"),
        (false, true) => format!("{name} takes requests\n"),
        (false, false) => format!("{name} is not draining; it gets requests as soon as it is ready\n"),
    }
}

/// What a reload came to.
pub(crate) fn reloaded(answer: &Reloaded) -> String {
    let mut text = String::new();
    if !answer.is_changed {
        text.push_str(if answer.needs_restart.is_empty() { "nothing changed\n" } else { "nothing changed at once\n" });
    }
    let changes = &answer.changes;
    for (what, rows) in [("endpoint", &changes.endpoints), ("model", &changes.models), ("profile", &changes.profiles)] {
        list(what, rows, &mut text);
    }
    for setting in &changes.settings {
        text.push_str(&format!("{}\n", change(setting)));
    }
    for setting in &answer.needs_restart {
        text.push_str(&format!("{}: takes effect at a restart\n", change(setting)));
    }
    text
}

fn list(what: &str, rows: &Rows, text: &mut String) {
    for (verb, names) in [("added", &rows.added), ("removed", &rows.removed)] {
        for name in names {
            text.push_str(&format!("{what} {name} {verb}\n"));
        }
    }
    for changed in &rows.changed {
        text.push_str(&format!("{what} {} changed: {}\n", changed.name, changed.keys.join(", ")));
    }
}

fn change(setting: &Setting) -> String {
    match (&setting.running, &setting.configured) {
        (Some(from), Some(to)) => format!("{} from {from} to {to}", setting.key),
        _ => format!("{} changed", setting.key),
    }
}

/// One line an act; what changed stands as fields from and to.
pub(crate) fn events(answer: &Audit) -> String {
    let mut rows = vec![["SEQ", "WHEN", "WHO", "WHAT", "TO", "CHANGE"].map(str::to_owned)];
    rows.extend(answer.events.iter().map(|event| {
        let changed = difference(&event.before, &event.after);
        let (who, what, to) = (event.actor.clone(), event.action.clone(), event.target_id.clone());
        [event.seq.to_string(), moment(event.ts), who, what, to, changed]
    }));
    table(&rows)
}

/// The fields that differ; those of what was not there before are shown if they say something.
fn difference(before: &Value, after: &Value) -> String {
    const KNOWN: [&str; 3] = ["id", "created_at", "last_used_at"];
    let empty = serde_json::Map::new();
    let (from, to) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
    names.sort();
    names.dedup();
    let one = |name: &&String| {
        let (from, to) = (from.get(*name).unwrap_or(&Value::Null), to.get(*name).unwrap_or(&Value::Null));
        let is_told = from != to && !KNOWN.contains(&name.as_str());
        is_told.then(|| if before.is_null() { format!("{name} {to}") } else { format!("{name} {from} to {to}") })
    };
    names.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// Where a copy of the store is.
pub(crate) fn copied(answer: &Copied) -> String {
    format!("{} holds a copy of the store ({} bytes), looked over and whole\n", answer.path, answer.bytes)
}

/// Columns as wide as their widest cell, two spaces apart; nothing behind the last.
pub(crate) fn table(rows: &[impl AsRef<[String]>]) -> String {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let in_column = |column: usize| rows.iter().filter_map(move |row| row.as_ref().get(column));
    let width = |column: usize| in_column(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.as_ref().iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(change: impl FnOnce(&mut Endpoint)) -> Endpoint {
        let mut endpoint = Endpoint {
            name: "a".into(),
            url: "http://h:1".into(),
            engine: "vllm".into(),
            models: vec!["m".into(), "n".into()],
            pool: "none/l4".into(),
            priority: 100,
            weight: 50,
            state: "ready".into(),
            is_ready: true,
            is_draining: false,
            breaker: "closed".into(),
            in_flight: 0,
        };
        change(&mut endpoint);
        endpoint
    }

    #[test]
    fn endpoints_stand_in_columns() {
        let other = endpoint(|e| {
            (e.name, e.state, e.breaker) = ("engine-b".into(), "not_ready".into(), "half_open".into());
        });
        let text = endpoints(&Endpoints { endpoints: vec![endpoint(|_| ()), other] });
        let expected = "\
NAME      STATE                         IN FLIGHT  POOL     PRIORITY  WEIGHT  ENGINE  MODELS  URL
a         ready                         0          none/l4  100       50      vllm    m,n     http://h:1
engine-b  not ready, breaker half open  0          none/l4  100       50      vllm    m,n     http://h:1
1 of 2 take requests
";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_act_is_told_by_what_differs() {
        let check = |before: Value, after: Value, expected: &str| assert_eq!(difference(&before, &after), expected);
        let (none, key) = (Value::Null, |band: Value| serde_json::json!({ "id": "k", "band": band, "name": "a" }));
        check(none.clone(), key(none.clone()), "name \"a\"");
        check(key("gold".into()), key(none.clone()), "band \"gold\" to null");
        check(key(none.clone()), none, "name \"a\" to null");
    }

    #[test]
    fn a_drain_says_what_still_runs() {
        let check = |is_draining, in_flight, expected: &str| {
            let endpoint = endpoint(|e| (e.is_draining, e.in_flight) = (is_draining, in_flight));
            assert_eq!(drained(&Drained { endpoint }), expected);
        };
        check(true, 0, "a is draining: it gets no new requests, and none is running\n");
        check(true, 1, "a is draining: it gets no new requests; 1 request runs to the end\n");
        check(true, 2, "a is draining: it gets no new requests; 2 requests run to the end\n");
        check(false, 2, "a takes requests\n");
    }

    #[test]
    fn a_reload_says_what_changed_line_by_line() {
        let setting = |key: &str, values: Option<(&str, &str)>| Setting {
            key: key.into(),
            running: values.map(|(from, _)| from.into()),
            configured: values.map(|(_, to)| to.into()),
        };
        let mut answer = Reloaded { is_changed: false, changes: Default::default(), needs_restart: Vec::new() };
        assert_eq!(reloaded(&answer), "nothing changed\n");
        answer.needs_restart = vec![setting("cores", Some(("1", "2")))];
        assert_eq!(reloaded(&answer), "nothing changed at once\ncores from 1 to 2: takes effect at a restart\n");
        answer.is_changed = true;
        answer.changes.endpoints.added = vec!["b".into()];
        answer.changes.models.removed = vec!["m".into()];
        answer.changes.settings = vec![setting("admin_token", None), setting("router.retries", Some(("2", "3")))];
        assert_eq!(
            reloaded(&answer),
            "endpoint b added\nmodel m removed\nadmin_token changed\nrouter.retries from 2 to 3\n\
             cores from 1 to 2: takes effect at a restart\n"
        );
    }
}
