//! The admin API as an OpenAPI document, made from the table of routes.
//!
//! A test holds every answer to its schema, so the document cannot say what is not so.

use serde_json::{Map, Value, json};

use crate::desk::Verb;
use crate::routes::ROUTES;

/// Where the document is, below the API's root.
pub(crate) const PATH: &str = "/openapi.json";

/// What a server answers itself, beside this table: its engines and its configuration.
const OF_THE_SERVER: &[(Verb, &str, &str, &str)] = &[
    (Verb::Get, "/endpoints", "listEndpoints", "Every endpoint and its state"),
    (Verb::Post, "/endpoints/{name}/drain", "drainEndpoint", "Send an endpoint no new requests"),
    (Verb::Post, "/endpoints/{name}/undrain", "undrainEndpoint", "Send a drained endpoint requests again"),
    (Verb::Post, "/reload", "reload", "Load the configuration file again"),
];

/// The document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    let mut put = |path: &str, verb: Verb, operation: Value| {
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[verb.word().to_lowercase()] = operation;
    };
    for (verb, path, name, summary) in OF_THE_SERVER {
        put(path, *verb, operation(name, summary, &parameters(path, &[]), None, &json!({ "type": "object" })));
    }
    for route in ROUTES {
        let body = route.body.map(reference);
        let answer = reference(route.answer);
        let operation = operation(route.name, route.summary, &parameters(route.path, route.query), body, &answer);
        put(route.path, route.verb, operation);
    }
    put(PATH, Verb::Get, operation("describe", "This document", &json!([]), None, &json!({ "type": "object" })));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "llmgw admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Times are unix milliseconds. What stands for {organization}, {team}, {project}, {key} or \
                            {scope} is an id, or names from the top joined by / (acme/search/chat), percent-encoded.",
        },
        "servers": [{ "url": "/api/v1" }],
        "security": [{ "adminToken": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": { "adminToken": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas(),
        },
    })
}

fn operation(name: &str, summary: &str, parameters: &Value, body: Option<Value>, answer: &Value) -> Value {
    let content = |schema: &Value| json!({ "application/json": { "schema": schema } });
    let mut operation = json!({
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": { "description": "done", "content": content(answer) },
            "default": { "description": "not done", "content": content(&reference("Error")) },
        },
    });
    if let Some(body) = body {
        operation["requestBody"] = json!({ "required": true, "content": content(&body) });
    }
    operation
}

fn parameters(path: &str, query: &[(&str, &str)]) -> Value {
    let open = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let open = open.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let text = json!({ "type": "string" });
    let asked = |(name, meaning): &(&str, &str)| {
        let schema = text.clone();
        json!({ "name": name, "in": "query", "description": meaning, "schema": schema })
    };
    let query = query.iter().map(asked);
    open.chain(query).collect()
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// An object with these fields and no others; all of them are there.
fn object(fields: &[(&str, Value)]) -> Value {
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "required": names, "additionalProperties": false, "properties": properties(fields) })
}

/// An object of which only `required` must be there.
fn body(required: &[&str], fields: &[(&str, Value)]) -> Value {
    json!({ "type": "object", "required": required, "additionalProperties": false, "properties": properties(fields) })
}

fn properties(fields: &[(&str, Value)]) -> Map<String, Value> {
    fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect()
}

pub(crate) fn schemas() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let truth = json!({ "type": "boolean" });
    let text_or_null = json!({ "type": ["string", "null"] });
    let number_or_null = json!({ "type": ["integer", "null"] });
    let any = json!({});
    let list = |of: &str| json!({ "type": "array", "items": reference(of) });
    let names_or_null = json!({ "type": ["array", "null"], "items": { "type": "string" } });
    let organization = [("id", text.clone()), ("name", text.clone()), ("created_at", number.clone())];
    let key = [
        ("id", text.clone()),
        ("prefix", text.clone()),
        ("name", text.clone()),
        ("project_id", text.clone()),
        ("band", text_or_null.clone()),
        ("routing_profile", text_or_null.clone()),
        ("may_pin_replica", truth.clone()),
        ("state", json!({ "enum": ["active", "expired", "revoked"] })),
        ("created_at", number.clone()),
        ("expires_at", number_or_null.clone()),
        ("revoked_at", number_or_null.clone()),
        ("last_used_at", number_or_null.clone()),
    ];
    let listed: Vec<_> = key.iter().cloned().chain([("project", text_or_null.clone())]).collect();
    let limits = [
        ("rpm", number_or_null.clone()),
        ("tpm", number_or_null.clone()),
        ("parallel", number_or_null.clone()),
        ("budget_micros", number_or_null.clone()),
        ("budget_period", json!({ "enum": ["day", "month", null] })),
        ("time_zone", text_or_null.clone()),
        ("allowed_models", names_or_null.clone()),
    ];
    let effective = object(&[
        ("band", text_or_null.clone()),
        ("routing_profile", text_or_null.clone()),
        ("allowed_models", names_or_null),
    ]);
    let old_secret = object(&[("prefix", text.clone()), ("expires_at", number.clone())]);
    let error = object(&[
        ("message", text.clone()),
        ("type", text.clone()),
        ("param", text_or_null.clone()),
        ("code", text.clone()),
    ]);
    let (name, created) = (("name", text.clone()), ("created_at", number.clone()));
    let team = object(&[("id", text.clone()), ("org_id", text.clone()), name.clone(), created.clone()]);
    let profile = [("band", text_or_null.clone()), ("routing_profile", text_or_null.clone())];
    let with = |more: &[(&'static str, Value)]| more.iter().chain(&profile).cloned().collect::<Vec<_>>();
    json!({
        "Error": object(&[("error", error)]),
        "Organization": object(&organization),
        "Organizations": object(&[("organizations", list("Organization"))]),
        "NewOrganization": body(&["name"], &[("name", text.clone())]),
        "Rename": body(&["name"], &[("name", text.clone())]),
        "Team": team,
        "Teams": object(&[("teams", list("Team"))]),
        "NewTeam": body(&["organization", "name"], &[("organization", text.clone()), ("name", text.clone())]),
        "Project": object(&with(&[("id", text.clone()), ("team_id", text.clone()), name.clone(), created])),
        "Projects": object(&[("projects", list("Project"))]),
        "NewProject": body(&["team", "name"], &with(&[("team", text.clone()), ("name", text.clone())])),
        "ProjectChange": body(&[], &with(&[("name", text.clone())])),
        "Key": object(&key),
        "ListedKey": object(&listed),
        "Keys": object(&[("keys", list("ListedKey"))]),
        "NewKey": body(&["name"], &with(&[
            ("name", text.clone()), ("project", text.clone()), ("may_pin_replica", truth.clone()),
            ("expires_at", number_or_null.clone()), ("expires_in_seconds", number_or_null.clone()),
        ])),
        "MadeKey": object(&[("key", text.clone()), ("record", reference("Key"))]),
        "KeyChange": body(&[], &with(&[name, ("may_pin_replica", truth.clone()), ("expires_at", number_or_null.clone())])),
        "KeyWithChain": object(&[
            ("record", reference("Key")), ("project", text_or_null.clone()), ("effective", effective),
            ("old_secrets", json!({ "type": "array", "items": old_secret })),
        ]),
        "Rotation": body(&[], &[("overlap_seconds", number_or_null.clone())]),
        "Limits": body(&[], &limits),
        "LimitsRow": object(&[
            ("level", text.clone()), ("scope_id", text.clone()), ("model", text_or_null.clone()), ("limits", object(&limits)),
        ]),
        "LimitsList": object(&[("limits", list("LimitsRow"))]),
        "Event": object(&[
            ("seq", number.clone()), ("ts", number.clone()), ("actor", text.clone()), ("action", text.clone()),
            ("target_type", text.clone()), ("target_id", text.clone()), ("before", any.clone()), ("after", any),
        ]),
        "Audit": object(&[("events", list("Event"))]),
        "Sum": object(&[
            ("day", number_or_null.clone()), ("organization_id", text_or_null.clone()),
            ("organization", text_or_null.clone()), ("team_id", text_or_null.clone()), ("team", text_or_null.clone()),
            ("project_id", text_or_null.clone()), ("project", text_or_null.clone()), ("key_id", text_or_null.clone()),
            ("key", text_or_null.clone()), ("model", text_or_null.clone()), ("requests", number.clone()),
            ("prompt_tokens", number.clone()), ("cached_tokens", number.clone()), ("completion_tokens", number.clone()),
            ("units_micros", number.clone()), ("estimated_requests", number.clone()),
        ]),
        "Usage": object(&[
            ("since", number.clone()), ("until", number.clone()), ("is_cut", truth.clone()), ("usage", list("Sum")),
        ]),
        "RequestUsage": object(&[
            ("request_id", text.clone()), ("admitted_at", number.clone()), ("ended_at", number.clone()),
            ("key_id", text.clone()), ("project_id", text.clone()), ("model", text.clone()),
            ("served_model", text.clone()), ("pool", text_or_null.clone()), ("replica", text_or_null.clone()),
            ("status", number.clone()), ("reason", text_or_null.clone()), ("prompt_tokens", number.clone()),
            ("cached_tokens", number.clone()), ("completion_tokens", number.clone()), ("units_micros", number.clone()),
            ("is_estimated", truth.clone()), ("ttft_ms", number_or_null.clone()), ("duration_ms", number.clone()),
            ("queue_ms", number_or_null.clone()),
        ]),
        "BackupTo": body(&["path"], &[("path", text.clone())]),
        "Backup": object(&[("path", text), ("bytes", number)]),
    })
}
