//! One question to the admin API and its answer, with words for everything that can go wrong in between.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use llmgw_kit::secret::Secret;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    Put,
    Patch,
    Delete,
}

impl Method {
    const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What an [`OfflineDesk`] says.
#[derive(Debug)]
pub struct OfflineAnswer {
    /// As in HTTP.
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// Answers in place of a server: method, path and query below `/api/v1`, body, and who asks.
pub type OfflineDesk = Box<dyn Fn(&str, &str, &str, &str) -> OfflineAnswer>;

/// Opens a store's file to be asked in place of a server. Errors: why it cannot be.
pub type Offline<'a> = &'a dyn Fn(&Path) -> Result<OfflineDesk, String>;

/// Who is told to have asked, beside what the server knows of it.
const ACTOR_HEADER: &str = "x-llmgw-actor";

/// An admin API.
pub(crate) struct Api {
    root: String,
    way: Way,
}

enum Way {
    Server { token: Option<Secret>, agent: ureq::Agent },
    File(OfflineDesk),
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
        let way = Way::Server { token: token.map(Secret::new), agent: config.build().into() };
        Ok(Self { root: root.to_owned(), way })
    }

    /// Asks a store's file.
    pub(crate) fn on_file(desk: OfflineDesk) -> Self {
        Self { root: "the store".to_owned(), way: Way::File(desk) }
    }

    /// Asks; the answer's text if what was asked was done.
    pub(crate) fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String, Failure> {
        let body = body.map(Value::to_string);
        let (status, text) = match &self.way {
            Way::File(desk) => {
                let actor = format!("{} (the store's file)", user());
                let answer = desk(method.word(), path, body.as_deref().unwrap_or_default(), &actor);
                (answer.status, answer.body)
            }
            Way::Server { token, agent } => self.ask_server(agent, token.as_ref(), method, path, body)?,
        };
        if status == 200 { Ok(text) } else { Err(self.refused(status, &text)) }
    }

    fn ask_server(
        &self,
        agent: &ureq::Agent,
        token: Option<&Secret>,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(u16, String), Failure> {
        let root = &self.root;
        let unreachable = |error: ureq::Error| {
            let hint = "is the server running, and is this its admin_listen? (--admin URL)";
            Failure::Server(format!("no answer from {root}: {error}; {hint}"))
        };
        let mut request = ureq::http::Request::builder()
            .method(method.word())
            .uri(format!("{root}/api/v1{path}"))
            .header(ACTOR_HEADER, user());
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        let sent = match (method, body) {
            (Method::Get | Method::Delete, _) => request.body(()).map(|request| agent.run(request)),
            (_, body) => {
                let request = request.header("content-type", "application/json");
                request.body(body.unwrap_or_default()).map(|request| agent.run(request))
            }
        };
        let sent = sent.map_err(|error| Failure::Usage(format!("this cannot be asked: {error}")))?;
        let mut response = sent.map_err(unreachable)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(unreachable)?;
        Ok((status, text))
    }

    fn refused(&self, status: u16, text: &str) -> Failure {
        let Ok(Refusal { error }) = serde_json::from_str::<Refusal>(text) else {
            return Failure::Server(format!("{} answered {status}, and not as an admin address does", self.root));
        };
        let token = match &self.way {
            Way::Server { token, .. } => token.as_ref(),
            Way::File(_) => None,
        };
        let hint = match (status, token) {
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

/// Who runs this program, as the system calls them; for the record.
fn user() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let named = named.filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()));
    named.unwrap_or_else(|| "somebody".to_owned())
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
