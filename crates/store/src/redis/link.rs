//! The connection to a server or a cluster, and its errors by cause.

use std::time::Duration;

use ::redis::cluster::{ClusterClient, ClusterConnection, ClusterPipeline};
use ::redis::{
    Client, Cmd, Connection, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};

use super::options::RedisOptions;
use super::script::Script;

/// A connection to one server or to a cluster. You must drop this after any error.
pub(super) enum Link {
    One(Box<Connection>),
    Cluster(Box<ClusterConnection>),
}

/// The cause of an error, as the metric of errors distinguishes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Connect,
    Lost,
    Timeout,
    Auth,
    Full,
    ReadOnly,
    Loading,
    Cluster,
    Copied,
    Other,
}

/// An error, and its cause.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) error: RedisError,
}

/// A command or a script call. Arguments are appended one by one.
pub(super) struct Call {
    command: Cmd,
    script: Option<&'static Script>,
}

impl Call {
    pub(super) fn new<K: AsRef<str>>(script: &'static Script, keys: &[K]) -> Self {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(script.hash()).arg(keys.len());
        keys.iter().for_each(|key| {
            command.arg(key.as_ref());
        });
        Self { command, script: Some(script) }
    }

    /// Like [`Call::new`], but sends the source of the script. You need this if later calls in the
    /// pipeline rely on this one: a server that does not know the hash would fail this call, and
    /// still run the later ones.
    pub(super) fn in_order<K: AsRef<str>>(script: &Script, keys: &[K]) -> Self {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(script.text).arg(keys.len());
        keys.iter().for_each(|key| {
            command.arg(key.as_ref());
        });
        Self { command, script: None }
    }

    pub(super) fn plain(name: &str, key: &str) -> Self {
        let mut command = Cmd::new();
        command.arg(name).arg(key);
        Self { command, script: None }
    }

    pub(super) fn arg(&mut self, text: &str) -> &mut Self {
        self.command.arg(text);
        self
    }

    /// Returns the same call with the source of the script, for a server that does not know its
    /// hash.
    fn in_full(&self) -> Cmd {
        let Some(script) = self.script else { return self.command.clone() };
        let mut command = Cmd::new();
        command.arg("EVAL").arg(script.text);
        for arg in self.command.args_iter().skip(2) {
            if let ::redis::Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        command
    }
}

impl Link {
    pub(super) fn connect(options: &RedisOptions) -> Result<Self, Failure> {
        let fail = |error: RedisError| {
            let cause = match Cause::from_error(&error) {
                Cause::Other | Cause::Lost => Cause::Connect,
                cause => cause,
            };
            Failure { cause, error }
        };
        let timeout = options.timeout;
        if options.cluster {
            let client = ClusterClient::builder(options.urls.iter().map(String::as_str))
                .connection_timeout(timeout)
                .response_timeout(timeout)
                // The flush itself retries, with the values at that time.
                .retries(1)
                .build()
                .map_err(fail)?;
            let connection = client.get_connection().map_err(fail)?;
            connection.set_write_timeout(Some(timeout)).map_err(fail)?;
            return Ok(Self::Cluster(Box::new(connection)));
        }
        let mut last = None;
        for url in &options.urls {
            match connect_one(url, timeout) {
                Ok(connection) => return Ok(Self::One(Box::new(connection))),
                Err(error) => last = Some(error),
            }
        }
        let none = || RedisError::from((ErrorKind::InvalidClientConfig, "no address is given"));
        Err(fail(last.unwrap_or_else(none)))
    }

    /// Makes all calls in one pipeline. If the server does not know a script, sends all scripts.
    pub(super) fn run(&mut self, calls: &[Call]) -> Result<Vec<Value>, Failure> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let result = self.pipe(calls.iter().map(|call| call.command.clone()));
        match result {
            // Repeating the pipeline is safe, because every script can run again.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.pipe(calls.iter().map(Call::in_full))
            }
            reply => reply,
        }
        .map_err(Failure::from)
    }

    /// Returns the responses, or the first error among them.
    fn pipe(&mut self, commands: impl Iterator<Item = Cmd>) -> RedisResult<Vec<Value>> {
        match self {
            Self::One(connection) => {
                let mut pipeline = Pipeline::new();
                commands.for_each(|command| {
                    pipeline.add_command(command);
                });
                let answers: Vec<RedisResult<Value>> =
                    pipeline.ignore_errors().query(connection.as_mut())?;
                answers.into_iter().collect()
            }
            Self::Cluster(connection) => {
                let mut pipeline = ClusterPipeline::new();
                commands.for_each(|command| {
                    pipeline.add_command(command);
                });
                pipeline.query(connection)
            }
        }
    }
}

fn connect_one(url: &str, timeout: Duration) -> RedisResult<Connection> {
    let connection = Client::open(url)?.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    Ok(connection)
}

impl Cause {
    /// Returns whether other calls on this connection would fail too.
    pub(super) fn is_of_link(self) -> bool {
        matches!(self, Self::Connect | Self::Lost | Self::Timeout)
    }

    pub(super) const EVERY: [Self; 10] = [
        Self::Connect,
        Self::Lost,
        Self::Timeout,
        Self::Auth,
        Self::Full,
        Self::ReadOnly,
        Self::Loading,
        Self::Cluster,
        Self::Copied,
        Self::Other,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Lost => "connection_lost",
            Self::Timeout => "timeout",
            Self::Auth => "auth",
            Self::Full => "out_of_memory",
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::Cluster => "cluster",
            Self::Copied => "copied",
            Self::Other => "other",
        }
    }

    fn from_error(error: &RedisError) -> Self {
        use ServerErrorKind as Server;

        match error.kind() {
            _ if error.is_timeout() => Self::Timeout,
            ErrorKind::AuthenticationFailed | ErrorKind::Server(Server::NoPerm) => Self::Auth,
            ErrorKind::Server(Server::ReadOnly) => Self::ReadOnly,
            ErrorKind::Server(Server::BusyLoading | Server::MasterDown) => Self::Loading,
            ErrorKind::Server(
                Server::Moved
                | Server::Ask
                | Server::TryAgain
                | Server::ClusterDown
                | Server::CrossSlot,
            )
            | ErrorKind::ClusterConnectionNotFound => Self::Cluster,
            ErrorKind::Io => Self::Lost,
            _ => {
                // Older servers wrap the error of a command within a script.
                let text = error.to_string();
                let has = |part: &str| text.contains(part);
                if has("OOM ") || has("OOM:") || error.code() == Some("OOM") {
                    Self::Full
                } else if ["NOAUTH", "WRONGPASS", "invalid password", "unauthenticated"]
                    .iter()
                    .any(|&t| has(t))
                {
                    Self::Auth
                } else if has("READONLY") {
                    Self::ReadOnly
                } else {
                    Self::Other
                }
            }
        }
    }
}

impl Failure {
    /// Another segment writes as this instance.
    pub(super) fn copied() -> Self {
        let reason = "another segment writes as this instance, because its file was copied: stop \
                    one of them, or give it a new file. Counting goes on; if the other is silent \
                    until it is declared dead, this one replaces its values";
        Self { cause: Cause::Copied, ..Self::other(reason) }
    }

    /// Creates an error that a server did not return.
    pub(super) fn other(message: &str) -> Self {
        let error = RedisError::from((ErrorKind::Client, "not written", message.to_owned()));
        Self { cause: Cause::Other, error }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self { cause: Cause::from_error(&error), error }
    }
}

/// Returns the string of a response.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Returns the items of a response.
pub(super) fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}
