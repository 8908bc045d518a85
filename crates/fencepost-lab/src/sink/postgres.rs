//! The protected system in Postgres, asked by its plain protocol.
//!
//! A write is one message, so that one that is held up somewhere takes effect, or is refused, when it arrives, whatever has become
//! of its author.

use std::str::FromStr;
use std::time::Duration;

use fencepost::postgres::tokio_postgres::config::Host;
use fencepost::postgres::tokio_postgres::tls::NoTlsStream;
use fencepost::postgres::tokio_postgres::{
    Client, Config, Connection, Error as ClientError, NoTls, SimpleQueryMessage,
};
use fencepost::{BackendUrl, LockName, Result};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::{Register, Verdict, Write, broken};
use crate::history::Row;

/// One partition in a Postgres database.
#[derive(Debug)]
pub(crate) struct PostgresSink {
    runtime: Runtime,
    config: Config,
    partition: LockName,
    client: Option<Client>,
}

impl PostgresSink {
    pub(super) fn new(url: &BackendUrl, partition: &LockName) -> Result<Self> {
        let text = url.expose().split('?').next().unwrap_or_default();
        let config = Config::from_str(text).map_err(|error| url.wrong(error))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| broken("start a runtime", error))?;
        Ok(Self { runtime, config, partition: partition.clone(), client: None })
    }

    pub(super) fn prepare(&mut self) -> Result<()> {
        let sql = include_str!("../../sql/postgres_prepare.sql");
        let sql = sql.replace("{partition}", self.partition.as_str());
        self.ask(&sql).map(drop)
    }

    pub(super) fn read(&mut self) -> Result<Register> {
        let sql = format!(
            "select total, last_write from fencepost_lab.register where partition = '{}'",
            self.partition
        );
        let rows = self.ask(&sql)?;
        let [row] = &rows[..] else { return Err(broken("read the register", "there is none")) };
        Ok(Register { total: number(row, 0)?, last_write: text(row, 1) })
    }

    pub(super) fn write(&mut self, write: &Write) -> Verdict {
        match self.send(&self.statements(write)) {
            Ok(_) => Verdict::Accepted,
            Err(Failure::Refused(why)) => Verdict::Refused(why),
            Err(Failure::Other(why)) => Verdict::Unknown(why),
        }
    }

    pub(super) fn rows(&mut self) -> Result<Vec<Row>> {
        let sql = format!(
            "select sequence, event, write, based_on, token from fencepost_lab.event where partition = '{}' order by sequence",
            self.partition
        );
        self.ask(&sql)?.iter().map(|row| read_row(row)).collect()
    }

    /// The check of the fence, and then the write.
    fn statements(&self, write: &Write) -> String {
        let token = write.token.map_or("null".to_owned(), |token| token.to_string());
        let sql = include_str!("../../sql/postgres_write.sql")
            .replace("{partition}", self.partition.as_str())
            .replace("{total}", &write.total().to_string())
            .replace("{event}", &write.total().to_string())
            .replace("{write}", &write.name)
            .replace("{based_on}", &write.base.last_write)
            .replace("{token}", &token);
        let check = write.stamp.as_ref().map(|stamp| {
            let (lock, token, holder) = (&stamp.lock, stamp.token, stamp.holder.as_str());
            format!("select fencepost.check('{lock}', {token}, '{holder}');\n")
        });
        check.unwrap_or_default() + &sql
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        self.send(sql).map_err(|failure| {
            let (Failure::Refused(why) | Failure::Other(why)) = failure;
            broken("ask Postgres", why)
        })
    }

    fn send(&mut self, sql: &str) -> std::result::Result<Vec<Vec<Option<String>>>, Failure> {
        let Self { runtime, config, client, .. } = self;
        runtime.block_on(async {
            let open = client.take().filter(|client| !client.is_closed());
            let connected = match open {
                Some(open) => open,
                None => connect(config).await?,
            };
            let answer = tokio::time::timeout(PATIENCE, connected.simple_query(sql)).await;
            let answer = answer.map_err(|_| Failure::Other(format!("no answer in {PATIENCE:?}")))?;
            *client = Some(connected);
            Ok(fields(answer.map_err(|error| Failure::of(&error))?))
        })
    }
}

/// Why there is no answer, or none that was hoped for.
enum Failure {
    /// The fence has refused the stamp.
    Refused(String),
    Other(String),
}

impl Failure {
    fn of(error: &ClientError) -> Self {
        match error.as_db_error() {
            Some(refusal) if refusal.code().code() == STALE => Self::Refused(refusal.message().to_owned()),
            Some(refusal) => Self::Other(refusal.message().to_owned()),
            None => Self::Other(error.to_string()),
        }
    }
}

async fn connect(config: &Config) -> std::result::Result<Client, Failure> {
    let connecting = tokio::time::timeout(PATIENCE, connect_over_tcp(config));
    let connected = connecting.await.map_err(|_| Failure::Other("it does not answer".to_owned()))?;
    let (client, connection) = connected?;
    // Whoever asks hears of its end.
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
}

async fn connect_over_tcp(
    config: &Config,
) -> std::result::Result<(Client, Connection<TcpStream, NoTlsStream>), Failure> {
    let Some(Host::Tcp(host)) = config.get_hosts().first() else {
        return Err(Failure::Other("its URL names no host".to_owned()));
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let stream = stream.map_err(|error| Failure::Other(error.to_string()))?;
    config.connect_raw(stream, NoTls).await.map_err(|error| Failure::of(&error))
}

fn fields(messages: Vec<SimpleQueryMessage>) -> Vec<Vec<Option<String>>> {
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|index| row.get(index).map(ToOwned::to_owned)).collect()).collect()
}

fn read_row(row: &[Option<String>]) -> Result<Row> {
    let token = row.get(4).and_then(Option::as_deref).and_then(|token| token.parse().ok());
    let (sequence, event) = (number(row, 0)?, number(row, 1)?);
    Ok(Row { sequence, event, write: text(row, 2), based_on: text(row, 3), token })
}

fn text(row: &[Option<String>], index: usize) -> String {
    row.get(index).cloned().flatten().unwrap_or_default()
}

fn number(row: &[Option<String>], index: usize) -> Result<i64> {
    let field = text(row, index);
    field.parse().map_err(|_| broken("read a number", format!("{field:?} is none")).during("ask Postgres"))
}

/// Longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(30);
/// The class of a stale stamp, `fencepost.check`.
const STALE: &str = "FP002";
