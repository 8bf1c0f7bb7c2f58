//! What `init` writes: one engine's findings as a few lines of YAML, and the file around them.
//!
//! Called by `init` alone. Pure: asks nobody, writes nothing. Texts that engines sent are quoted or replaced.

use std::path::Path;

use llmgw_config::url::EngineUrl;
use llmgw_types::endpoint::EngineKind;

use crate::probe::{Findings, KeyVerdict, ListedModel, printable};

/// One engine, as the file will name it.
pub(super) struct Engine {
    name: String,
    url: EngineUrl,
    kind: EngineKind,
    is_kind_told: bool,
    version: Option<String>,
    models: Vec<(String, String)>,
    no_metrics: Option<String>,
    not_ready: Option<String>,
    has_key: bool,
}

impl Engine {
    pub(super) fn new(url: &EngineUrl, found: Findings, number: usize) -> Result<Self, String> {
        match found.key {
            KeyVerdict::Missing(status) => {
                return Err(format!("it wants a key ({status}); put it into a variable and add --api-key-env NAME"));
            }
            KeyVerdict::Refused(status) => return Err(format!("it refuses the key ({status})")),
            KeyVerdict::NoneNeeded | KeyVerdict::Accepted => {}
        }
        let models = match found.models {
            Ok(models) => public_names(&models),
            Err(reason) => {
                let state = found.ready.err().map_or(String::new(), |reason| format!(" ({reason})"));
                return Err(format!("it does not say what it serves: {reason}{state}"));
            }
        };
        let kind = found.kind.unwrap_or(EngineKind::Vllm);
        Ok(Self {
            name: format!("{kind}-{number}"),
            url: url.clone(),
            kind,
            is_kind_told: found.kind.is_some(),
            version: found.version,
            models,
            no_metrics: found.metrics.and_then(Result::err),
            not_ready: found.ready.err(),
            has_key: found.key == KeyVerdict::Accepted,
        })
    }

    fn title(&self) -> String {
        match (self.is_kind_told, &self.version) {
            (false, _) => "an engine of unknown kind, taken for vllm".to_owned(),
            (true, Some(version)) => format!("{} {version}", self.kind),
            (true, None) => self.kind.to_string(),
        }
    }

    pub(super) fn summary(&self) -> String {
        let models: Vec<&str> = self.models.iter().map(|(name, _)| name.as_str()).collect();
        let mut summary = format!("{}, serves {}", self.title(), models.join(", "));
        if self.has_key {
            summary += ", key accepted";
        }
        if let Some(reason) = &self.not_ready {
            summary += &format!("; not ready yet: {reason}");
        }
        if let Some(reason) = &self.no_metrics {
            summary += &format!("; no metrics: {reason}{}", self.metrics_hint());
        }
        summary
    }

    fn metrics_hint(&self) -> String {
        let flag = llmgw_engines::kind::engine(self.kind).metrics_flag;
        flag.map_or(String::new(), |flag| format!("; start it with {flag} for better placing"))
    }

    fn render(&self, api_key_env: Option<&str>) -> String {
        let mut text = format!("  # {}\n", printable(&self.title()));
        let mut line = |key: &str, value: &str| text.push_str(&format!("    {key}: {value}\n"));
        line("name", &quoted(&self.name));
        line("url", &quoted(&self.url.to_string()));
        line("engine", self.kind.name());
        match self.models.as_slice() {
            [(name, served_as)] => {
                line("model", &quoted(name));
                if name != served_as {
                    line("served_as", &quoted(served_as));
                }
            }
            several => {
                text.push_str("    models:\n");
                for (name, served_as) in several {
                    let served_as = match name == served_as {
                        true => String::new(),
                        false => format!(", served_as: {}", quoted(served_as)),
                    };
                    text.push_str(&format!("      - {{ name: {}{served_as} }}\n", quoted(name)));
                }
            }
        }
        if let Some(variable) = api_key_env.filter(|_| self.has_key) {
            text.push_str(&format!("    api_key_env: {}\n", quoted(variable)));
        }
        if self.no_metrics.is_some() {
            text.push_str(&format!("    metrics_path: off  # it has none{}\n", self.metrics_hint()));
        }
        text.replacen("    name:", "  - name:", 1)
    }
}

/// Public names for what an engine lists: its own, but paths of files become the files' names, and what no header can
/// carry becomes what it can.
fn public_names(models: &[ListedModel]) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for model in models {
        let id = model.id.as_str();
        let is_file = id.starts_with('/') || id.ends_with(".gguf");
        let end = if is_file { id.rsplit('/').find(|part| !part.is_empty()).unwrap_or(id) } else { id };
        let end = end.strip_suffix(".gguf").unwrap_or(end);
        let name: String = end.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).take(200).collect();
        let is_taken = |name: &str| names.iter().any(|(other, _)| other == name);
        let free = (2..).map(|nth| format!("{name}-{nth}")).find(|other| !is_taken(other));
        let name = if is_taken(&name) { free.unwrap_or(name) } else { name };
        names.push((name, id.to_owned()));
    }
    names
}

/// A text as YAML: plain where nothing in it could be read as anything else.
fn quoted(text: &str) -> String {
    let is_plain_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/');
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(is_plain_byte);
    let is_reserved =
        matches!(text.to_ascii_lowercase().as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off");
    if (is_word || EngineUrl::parse(text).is_ok_and(|url| !url.host.contains(':'))) && !is_reserved {
        return text.to_owned();
    }
    // A JSON text is a YAML text.
    serde_json::Value::from(text).to_string()
}

/// The whole file.
pub(super) fn file(engines: &[Engine], output: &Path, api_key_env: Option<&str>) -> String {
    let output = output.display().to_string();
    let mut text = format!(
        "# Written by llmgw init. Every other key has a default: see docs/reference/config.md.\n\
         #   llmgw server --config {output} --check --probe    asks the engines again\n\
         #   llmgw server --config {output}                    serves\n\n\
         listen: \":8080\"                  # where clients connect\n\
         admin_listen: \"127.0.0.1:9090\"   # /metrics, /healthz, /readyz\n\n\
         endpoints:\n",
        output = printable(&output),
    );
    for engine in engines {
        text += &engine.render(api_key_env);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_names_are_what_a_client_would_write() {
        let listed = |id: &str| ListedModel { id: id.to_owned(), aliases: Vec::new() };
        let models = ["meta/Llama", "/models/tiny.gguf", "C:\\tiny model", "/other/tiny.gguf"].map(listed);
        let names: Vec<String> = public_names(&models).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["meta/Llama", "tiny", "C:\\tiny-model", "tiny-2"]);
        for (text, expected) in
            [("a-b.c/d", "a-b.c/d"), ("3", "\"3\""), ("off", "\"off\""), ("a: b", "\"a: b\""), ("é\"", "\"é\\\"\"")]
        {
            assert_eq!(quoted(text), expected);
        }
    }
}
