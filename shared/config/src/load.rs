//! A file and an environment → a checked configuration, or everything that is wrong with it.
//!
//! Called once at start. Order: the file's text, then the environment's overrides, then the checks.

use std::io::Read as _;
use std::path::Path;

use crate::checked;
use crate::config::ServerConfig;
use crate::environment::{self, Environment};
use crate::error::{ConfigError, Place, Problem};
use crate::read::{Read, Reader};
use crate::server::ServerTree;
use crate::yaml;

/// Loads a file with the environment of this process.
pub fn from_process_env(path: &Path) -> Result<ServerConfig, ConfigError> {
    // Variables that are not text cannot be an override, and cannot be sent as a key.
    load(
        path,
        std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?))),
    )
}

/// Loads a file with the environment given.
pub fn load(path: &Path, env: impl IntoIterator<Item = (String, String)>) -> Result<ServerConfig, ConfigError> {
    let name = path.display().to_string();
    let text = read_text(path).map_err(|message| {
        let problem = Problem { place: Place::File, message };
        ConfigError::new(&name, vec![problem])
    })?;
    from_text(&name, &text, env)
}

/// Loads a text as if it stood in a file of that name.
pub fn from_text(
    file: &str,
    text: &str,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<ServerConfig, ConfigError> {
    let environment: Environment = env.into_iter().collect();
    let wrong = |problems| ConfigError::new(file, problems);
    let mut root = yaml::parse(text).map_err(|problem| wrong(vec![problem]))?;
    let mut reader = Reader { problems: environment::apply(&mut root, &environment), ..Reader::default() };
    match ServerTree::read(&root, &mut reader) {
        Some(tree) => checked::check(&tree, &environment, reader).map_err(wrong),
        None => Err(wrong(reader.problems)),
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| {
        let right = match error.kind() {
            std::io::ErrorKind::NotFound => "; \"llmgw init URL…\" writes one",
            _ => "",
        };
        format!("cannot be read: {error}{right}")
    })?;
    // One more than is allowed, so that the parser sees that there is too much.
    file.take(yaml::TEXT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(valid).filter(|b| **b == b'\n').count() + 1;
        format!("line {line} is not UTF-8; save the file as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        match from_text("server.yaml", text, []) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_minimal_file_is_enough() {
        let config =
            from_text("server.yaml", "endpoints: [{ url: \"http://h:1\", model: m }]", []).expect("minimal file");
        assert_eq!(config.listen, [std::net::SocketAddr::from(([0, 0, 0, 0], 8080))]);
        assert_eq!(config.endpoints[0].name, "h:1");
        assert_eq!(config.models[0].routing_profile, "chat");
        assert!(config.without_effect.is_empty());
    }

    #[test]
    fn a_file_that_is_not_there_says_who_writes_one() {
        let error = load(Path::new("/nonexistent/server.yaml"), []).expect_err("no file").to_string();
        assert_eq!(
            error,
            "/nonexistent/server.yaml: cannot be read: No such file or directory (os error 2); \"llmgw init URL…\" \
            writes one"
        );
    }

    #[test]
    fn all_problems_are_found_at_once() {
        assert_eq!(
            message("enpoints: []\nlisten: 8080\nrouter:\n  scrape_interval: 2\n  timeouts: { conect: 1s }\n"),
            "server.yaml:1:1: unknown key \"enpoints\"; did you mean \"endpoints\"?\n\
             server.yaml:2:9: listen: \"8080\" is not an address with a port; write \":8080\"\n\
             server.yaml:4:20: router.scrape_interval: \"2\" has no unit: write 2s for seconds, or ms, m, h\n\
             server.yaml:5:15: unknown key \"conect\"; did you mean \"connect\"?"
        );
    }
}
