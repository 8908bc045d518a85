//! The examples of `docs/fencing.md`, run as they stand there.
//!
//! Each does its work under a run. Then another run does it, and the first one comes again, too late, with the environment
//! that it had: it ends with what the page shows, and has changed nothing.

use std::collections::BTreeSet;
use std::fs;

use fencepost_testkit::servers::{PgBouncer, PoolMode, PostgresServer, RedisServer};

use crate::page::Block;
use crate::support::{Home, Outcome, PYTHON, python_has};

fn blocks() -> Vec<Block> {
    Block::all_of(PAGE)
}

/// What stands behind a word in the comments of the page: the names of the examples that are run, for `run`.
fn named(word: &str) -> BTreeSet<&'static str> {
    let names = blocks().into_iter().filter_map(|block| block.name(word));
    names.collect()
}

/// An example of the page, ready to run.
struct Example {
    home: Home,
    /// What `run` is told of the fence; nothing where the job seals for itself.
    fence: Vec<String>,
    environment: Vec<(&'static str, String)>,
    command: String,
    /// What the page shows of a refusal.
    shown: String,
}

impl Example {
    fn of(name: &str, fence: Option<&str>, environment: &[(&'static str, &str)]) -> Self {
        let script = block("run", name);
        let (file, command) = match script.language {
            "sh" => ("job.sh", "sh job.sh".to_owned()),
            "python" => ("job.py", format!("{PYTHON} job.py")),
            other => panic!("nothing here runs {other}"),
        };
        let home = Home::new();
        home.write(file, &script.text);
        let fence = fence.map(|url| ["--fence".to_owned(), url.to_owned()]).into_iter().flatten().collect();
        let environment = environment.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { home, fence, environment, command, shown: block("refused", name).text }
    }

    /// Runs a script as the holder of the lock.
    fn run(&self, script: &str) -> Outcome {
        let args = ["run", "-n"].map(str::to_owned).into_iter().chain(self.fence.clone());
        let args = args.chain(["ledger", "--", "sh", "-c", script].map(str::to_owned));
        let mut command = self.home.fencepost(args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Outcome::of(command.output().unwrap())
    }

    /// The job of a holder, that of the next one, and the first one again with what it knew; `data` is what they change.
    ///
    /// Gives what the last one said and how it ended, and whether it has changed anything.
    fn comes_too_late(&self, data: impl Fn(&Self) -> String) -> (String, bool) {
        let before = data(self);
        self.run(&format!("export -p >old && {}", self.command)).exits(0);
        let first = data(self);
        self.run(&self.command).exits(0);
        let second = data(self);
        assert!(before != first && first != second, "{before:?}, {first:?}, {second:?}");
        let late = self.home.shell(&format!(". ./old; {}", self.command));
        let said = format!("{}{}exit {}\n", late.stdout, late.stderr, late.code.unwrap());
        (said, data(self) != second)
    }

    #[track_caller]
    fn is_refused_too_late(&self, data: impl Fn(&Self) -> String) {
        let (said, has_changed) = self.comes_too_late(data);
        assert!(says(&said, &self.shown), "the page shows\n{}\nand it said\n{said}", self.shown);
        assert!(!has_changed, "{said}");
    }
}

fn block(word: &str, example: &str) -> Block {
    let mut blocks = blocks().into_iter();
    let found = blocks.find(|block| block.name(word) == Some(example));
    found.unwrap_or_else(|| panic!("the page has no block `{word}: {example}`"))
}

/// Whether every line of `shown` is there, in this order.
fn says(said: &str, shown: &str) -> bool {
    let mut lines = said.lines();
    shown.lines().all(|pattern| lines.any(|line| fits(line, pattern)))
}

/// Whether a line is as the page shows it, where `…` stands for anything.
fn fits(line: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('…') else { return line == pattern };
    let Some(line) = line.strip_prefix(first) else { return false };
    (0..=line.len()).any(|at| line.is_char_boundary(at) && fits(&line[at..], rest))
}

/// A server whose table is guarded as the page says, and the URL of the role that writes.
fn postgres() -> (PostgresServer, String) {
    let server = PostgresServer::start();
    server.execute(
        "create role app login; create table account (total bigint not null); insert into account values (0); \
         grant all on account to app",
    );
    let home = Home::new();
    let mut install = home.command("sh");
    install.args(["-c", &block("run", "install-postgres").text]).env("DB", server.url());
    Outcome::of(install.output().unwrap()).exits(0);
    server.execute("grant usage on schema fencepost to app");
    let url = server.url_of("app", "postgres");
    (server, url)
}

fn total(server: &PostgresServer) -> String {
    server.query("select total from account")
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn psql_is_refused_as_the_page_shows() {
    let (server, url) = postgres();
    Example::of("psql", Some(&url), &[("DB", &url)]).is_refused_too_late(|_| total(&server));
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn psycopg_is_refused_as_the_page_shows() {
    if python_has("psycopg") {
        let (server, url) = postgres();
        Example::of("psycopg", Some(&url), &[("DB", &url)]).is_refused_too_late(|_| total(&server));
    }
}

#[test]
#[cfg_attr(not(all(postgres_server, pgbouncer_server)), ignore = "its server is not installed")]
fn psycopg_behind_a_pooler_is_refused_as_the_page_shows() {
    if python_has("psycopg") {
        let (server, url) = postgres();
        let pooler = PgBouncer::start(&server, PoolMode::Transaction, &[]);
        let example = Example::of("psycopg-pooler", Some(&url), &[("DB", &pooler.url())]);
        example.is_refused_too_late(|_| total(&server));
    }
}

#[test]
#[cfg_attr(not(redis_server), ignore = "its server is not installed")]
fn redis_client_is_refused_as_the_page_shows() {
    let server = RedisServer::start();
    let url = server.url();
    let example = Example::of("redis-cli", Some(&url), &[("REDIS", &url)]);
    example.home.run(["fence", "install", &url]).exits(0);
    example.is_refused_too_late(|_| format!("{:?}", server.command(&["GET", "total"])));
}

/// The database lies beside the job; its fence is made here.
fn on_sqlite(name: &str) -> Example {
    let mut example = Example::of(name, None, &[]);
    let url = format!("sqlite:{}", example.home.path("ledger.db").display());
    let script = "sqlite3 ledger.db 'CREATE TABLE account (total INTEGER); INSERT INTO account VALUES (0)'";
    example.home.shell(script).exits(0);
    example.home.run(["fence", "install", &url, "--table", "account", "--lock", "ledger"]).exits(0);
    example.fence = vec!["--fence".to_owned(), url];
    example
}

fn total_in_sqlite(example: &Example) -> String {
    example.home.shell("sqlite3 ledger.db 'SELECT total FROM account'").exits(0).stdout
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn python_on_sqlite_is_refused_as_the_page_shows() {
    if python_has("sqlite3") {
        on_sqlite("sqlite-python").is_refused_too_late(total_in_sqlite);
    }
}

#[test]
#[cfg_attr(not(sqlite_shell), ignore = "its program is not installed")]
fn shell_of_sqlite_is_refused_as_the_page_shows() {
    on_sqlite("sqlite-shell").is_refused_too_late(total_in_sqlite);
}

/// A directory that is a fence.
fn sink() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().display());
    (directory, url)
}

#[test]
fn publisher_is_refused_as_the_page_shows() {
    let (directory, url) = sink();
    let result = |_: &Example| fs::read_to_string(directory.path().join("ledger")).unwrap_or_default();
    Example::of("publish", Some(&url), &[("SINK", &url)]).is_refused_too_late(result);
}

#[test]
fn script_is_refused_as_the_page_shows() {
    let (_directory, url) = sink();
    Example::of("shell", Some(&url), &[("SINK", &url)]).is_refused_too_late(|it| it.home.read("total"));
}

/// Negative control: the same script without its check.
#[test]
fn script_without_its_check_comes_too_late_and_writes() {
    let (_directory, url) = sink();
    let example = Example::of("shell", Some(&url), &[("SINK", &url)]);
    let script = example.home.read("job.sh").replace("fencepost fence check \"$SINK\" || exit\n", "");
    example.home.write("job.sh", &script);
    let (said, has_changed) = example.comes_too_late(|it| it.home.read("total"));
    assert!(has_changed && !says(&said, &example.shown), "{said}");
}

/// The store is a file, and what stands for its client keeps to `If-Match`.
fn on_objects() -> Example {
    let example = Example::of("object-store", None, &[]);
    fs::create_dir(example.home.path("botocore")).unwrap();
    example.home.write("botocore/exceptions.py", ERRORS_OF_THE_STORE);
    example.home.write("boto3.py", STORE);
    example
}

fn object(example: &Example) -> String {
    example.home.read("object")
}

#[test]
fn conditional_put_is_refused_as_the_page_shows() {
    if python_has("json") {
        on_objects().is_refused_too_late(object);
    }
}

#[test]
fn conditional_put_between_which_another_holder_has_sealed_is_refused() {
    if !python_has("json") {
        return;
    }
    let example = on_objects();
    let script = example.home.read("job.py");
    let pause = "data, etag = seal()\nos.system('sh next >said 2>&1')\n";
    example.home.write("slow.py", &script.replace("data, etag = seal()\n", pause));
    // Another directory of locks stands for a lease that has run out.
    let next = format!("fencepost run -n --backend file:$HOME/other ledger -- {}\n", example.command);
    example.home.write("next", &format!("unset FENCEPOST_LOCK FENCEPOST_TOKEN FENCEPOST_HOLDER\n{next}"));
    let refused = example.run(&format!("{PYTHON} slow.py")).exits(1);
    assert!(refused.stderr.contains("PreconditionFailed"), "{refused:?}, {}", example.home.read("said"));
    assert!(object(&example).contains("\"data\": 1"), "{}", object(&example));
}

#[test]
fn page_and_tests_know_the_same_examples() {
    let known = include_str!("fencing_page.rs");
    let calls = ["Example::of(\"", "on_sqlite(\"", "block(\"run\", \""];
    let after = calls.iter().flat_map(|call| known.split(*call).skip(1));
    let tested: BTreeSet<&str> = after.filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
    let tested: BTreeSet<&str> =
        tested.into_iter().filter(|name| name.contains(char::is_alphabetic)).collect();
    assert_eq!(named("run"), tested);
    let mut with_refusal = named("run");
    with_refusal.remove("install-postgres");
    assert_eq!(named("refused"), with_refusal);
}

#[test]
fn every_block_of_the_page_is_run_or_says_that_it_is_not() {
    for block in blocks() {
        let is_known = ["run", "refused"].iter().any(|word| block.name(word).is_some());
        assert!(is_known || block.comment == "<!-- not run by the tests -->", "{}", block.text);
    }
    let sections = PAGE.split("\n### ").filter(|section| section.contains("<!-- not run by the tests -->"));
    for section in sections {
        assert!(
            section.to_lowercase().contains("*not run by the tests"),
            "readers see no comments: {section}"
        );
    }
}

#[test]
fn line_fits_what_the_page_shows() {
    assert!(fits("token 7 is stale, the mark is 8", "token … is stale, the mark is …"));
    assert!(!fits("token 7 is sealed for another holder", "token … is stale, the mark is …"));
    assert!(!fits("exit 12", "exit 1"));
    assert!(!says("exit 1\nerror\n", "error\nexit 1\n"));
}

const PAGE: &str = include_str!("../../../../docs/fencing.md");

const ERRORS_OF_THE_STORE: &str = "
class ClientError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.response = {'Error': {'Code': code}}
";

const STORE: &str = "
import hashlib, io, os
from botocore.exceptions import ClientError

def tag(body):
    return None if body is None else hashlib.md5(body).hexdigest()

class Client:
    def stored(self):
        return open('object', 'rb').read() if os.path.exists('object') else None

    def get_object(self, Bucket, Key):
        if self.stored() is None:
            raise ClientError('NoSuchKey')
        return {'Body': io.BytesIO(self.stored()), 'ETag': tag(self.stored())}

    def put_object(self, Bucket, Key, Body, IfMatch=None, IfNoneMatch=None):
        if (IfNoneMatch == '*' and self.stored() is not None) or (IfMatch and IfMatch != tag(self.stored())):
            raise ClientError('PreconditionFailed')
        open('object', 'wb').write(Body.encode())
        return {'ETag': tag(Body.encode())}

def client(service):
    return Client()
";
