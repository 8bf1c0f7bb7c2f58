//! One question to the admin API and its answer, with words for everything that can go wrong in between.

use std::fmt;
use std::time::Duration;

use llmgw_kit::secret::Secret;
use serde::de::DeserializeOwned;

use crate::reply::Refusal;

/// For a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// For the whole exchange; a reload waits for the file's disk.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// What of an answer is read: the list of a full load board is smaller.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command cannot be understood.
    Usage(String),
    /// The server cannot be reached, or did not do it.
    Server(String),
}

impl Failure {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 64,
            Self::Server(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Server(message) => f.write_str(message),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
}

/// A server's admin API.
pub(crate) struct Api {
    root: String,
    token: Option<Secret>,
    agent: ureq::Agent,
}

impl Api {
    /// Errors: the address is none.
    pub(crate) fn new(admin: &str, token: Option<String>) -> Result<Self, Failure> {
        let root = admin.trim_end_matches('/');
        let authority = root.strip_prefix("http://").filter(|rest| !rest.is_empty() && !rest.contains(['/', '?', '#']));
        if authority.is_none() {
            let message = format!("--admin {admin:?} is not an admin address; write for example http://127.0.0.1:9090");
            return Err(Failure::Usage(message));
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIME))
            .timeout_global(Some(ANSWER_TIME));
        Ok(Self { root: root.to_owned(), token: token.map(Secret::new), agent: config.build().into() })
    }

    /// Asks; the answer's text if the server did what was asked.
    pub(crate) fn ask(&self, method: Method, path: &str) -> Result<String, Failure> {
        let url = format!("{}/api/v1{path}", self.root);
        let authorization = self.token.as_ref().map(|token| format!("Bearer {}", token.expose()));
        let sent = match method {
            Method::Get => {
                let mut request = self.agent.get(&url);
                if let Some(value) = &authorization {
                    request = request.header("authorization", value);
                }
                request.call()
            }
            Method::Post => {
                let mut request = self.agent.post(&url);
                if let Some(value) = &authorization {
                    request = request.header("authorization", value);
                }
                request.send_empty()
            }
        };
        let root = &self.root;
        let unreachable = |error: ureq::Error| {
            let hint = "is the server running, and is this its admin_listen? (--admin URL)";
            Failure::Server(format!("no answer from {root}: {error}; {hint}"))
        };
        let mut response = sent.map_err(unreachable)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(unreachable)?;
        if status == 200 { Ok(text) } else { Err(self.refused(status, &text)) }
    }

    fn refused(&self, status: u16, text: &str) -> Failure {
        let Ok(Refusal { error }) = serde_json::from_str::<Refusal>(text) else {
            return Failure::Server(format!("{} answered {status}, and not as an admin address does", self.root));
        };
        let hint = match (status, &self.token) {
            (401, None) => "; name it with --token-env or --token-file",
            (401, Some(_)) => "; the token that was shown is another",
            _ => "",
        };
        let message = match error.code.as_str() {
            "config_refused" => {
                format!("the configuration is refused and the running one stays:\n{}", error.message)
            }
            "endpoint_not_found" => format!("{}; \"llmgw ctl endpoints\" lists them", error.message),
            _ => format!("{}{hint}", error.message),
        };
        Failure::Server(message)
    }
}

/// Reads an answer.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Server(format!("the answer is of another version than this program: {error}")))
}

/// A name as one part of a path.
pub(crate) fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_said_with_one_that_is() {
        for admin in ["", "127.0.0.1:9090", "https://h:1", "http://", "http://h:1/api", "http:///"] {
            match Api::new(admin, None) {
                Err(failure @ Failure::Usage(_)) => assert!(failure.to_string().contains("http://127.0.0.1:9090")),
                _ => panic!("{admin:?} is taken"),
            }
        }
        assert!(Api::new("http://[::1]:9090/", None).is_ok());
    }

    #[test]
    fn names_travel_as_one_part_of_a_path() {
        assert_eq!(encoded("h:1"), "h:1");
        assert_eq!(encoded("a/b?%"), "a%2Fb%3F%25");
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let refused = |status, text: &str| Api::new("http://h:1", None).ok().map(|api| api.refused(status, text));
        let body = r#"{"error":{"message":"needs the token","type":"x","param":null,"code":"admin_token"}}"#;
        let message = refused(401, body).map(|failure| failure.to_string());
        assert_eq!(message.as_deref(), Some("needs the token; name it with --token-env or --token-file"));
        let message = refused(200, "<html>").map(|failure| failure.to_string());
        assert_eq!(message.as_deref(), Some("http://h:1 answered 200, and not as an admin address does"));
    }
}
