//! How a server is reached, or the file of its store; the same for every command.

use std::path::PathBuf;

use crate::api::{Api, Failure, Offline};

/// The variable that holds the admin token unless another is named.
const TOKEN_VARIABLE: &str = "LLMGW_ADMIN_TOKEN";

/// The options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// The server's admin address (admin_listen in its configuration)
    #[arg(long, value_name = "URL", global = true, default_value = "http://127.0.0.1:9090")]
    admin: String,
    /// The environment variable that holds the admin token [default: LLMGW_ADMIN_TOKEN, if it is set]
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "token_file")]
    token_env: Option<String>,
    /// The file that holds the admin token
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// Work on a store's file in place of a server. One that runs on the same file hears of it within a second
    #[arg(long, value_name = "FILE", global = true, conflicts_with_all = ["token_env", "token_file"])]
    store: Option<PathBuf>,
    /// Print the server's answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Reach {
    /// Whom to ask. Errors: there is no such address, file or token.
    pub(crate) fn api(&self, offline: Offline<'_>) -> Result<Api, Failure> {
        match &self.store {
            Some(file) => offline(file).map(Api::on_file).map_err(Failure::Server),
            None => Api::new(&self.admin, self.token()?),
        }
    }

    /// The admin token, if one is named or set.
    fn token(&self) -> Result<Option<String>, Failure> {
        let text = if let Some(path) = &self.token_file {
            let read = std::fs::read_to_string(path);
            read.map_err(|error| Failure::Usage(format!("--token-file {}: {error}", path.display())))?
        } else if let Some(name) = &self.token_env {
            let value = std::env::var(name);
            value.map_err(|_| Failure::Usage(format!("--token-env {name}: the variable is not set, or is not text")))?
        } else {
            match std::env::var(TOKEN_VARIABLE) {
                Ok(value) => value,
                Err(_) => return Ok(None),
            }
        };
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::Usage("the admin token is empty or holds characters that cannot be sent".to_owned()));
        }
        Ok(Some(token.to_owned()))
    }
}
