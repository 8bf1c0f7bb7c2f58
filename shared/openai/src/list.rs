//! `/v1/models`: the list and one model's object.
//!
//! Called by the gateway's models handler. Changes when clients expect another field. Never decides who may see what.

use crate::json;

/// A model as clients see it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub name: &'a str,
    /// Units: seconds since 1970.
    pub created: u64,
}

/// Writes the body of `GET /v1/models` after what `out` holds, in the order given.
pub fn write_list<'a>(out: &mut Vec<u8>, models: impl IntoIterator<Item = Listed<'a>>) {
    out.extend_from_slice(br#"{"object":"list","data":["#);
    for (idx, model) in models.into_iter().enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        model.write(out);
    }
    out.extend_from_slice(b"]}");
}

impl Listed<'_> {
    /// Writes the body of `GET /v1/models/NAME` after what `out` holds.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"id":"#);
        json::write_string(out, self.name);
        out.extend_from_slice(br#","object":"model","created":"#);
        out.extend_from_slice(self.created.to_string().as_bytes());
        out.extend_from_slice(br#","owned_by":"llmgw"}"#);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_they_are() {
        let names = ["tiny", "org/m:7b@q4", "模型", "a\"b\\c"];
        let mut out = Vec::new();
        write_list(&mut out, names.map(|name| Listed { name, created: 1_795_978_891 }));
        let list: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let model = |name| serde_json::json!({"id":name,"object":"model","created":1795978891,"owned_by":"llmgw"});
        assert_eq!(list, serde_json::json!({"object":"list","data":names.map(model)}));
    }

    #[test]
    fn no_models_are_an_empty_list() {
        let mut out = Vec::new();
        write_list(&mut out, []);
        assert_eq!(out, br#"{"object":"list","data":[]}"#);
    }
}
