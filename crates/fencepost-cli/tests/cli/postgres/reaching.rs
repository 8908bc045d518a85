//! Which server a URL without a host names, which is the one that psql would take; and that a password is shown nowhere.

use fencepost_testkit::servers::{PostgresServer, PostgresSetup};

use super::Scene;
use crate::support::{Home, Outcome, Running, eventually};

/// A role and a database that no default would come to.
fn with_orders(server: PostgresServer) -> PostgresServer {
    server.execute("create role ann superuser login password 's3cret-ann'");
    server.create_database("orders");
    server
}

/// Runs once under a lock with these variables, and asserts that psql, with the same, has reached the same database.
#[track_caller]
fn reaches(home: &Home, server: &PostgresServer, variables: &[(&str, String)]) {
    let variables = || variables.iter().map(|(name, value)| (*name, value));
    let script = "psql -X -A -t -c \"select current_user, current_database(), count(*) from fencepost.lock where name = 'demo'\"";
    let mut run = home.fencepost(["-v", "run", "-n", "demo", "--", "sh", "-c", script]);
    let run = Outcome::of(run.envs(variables()).output().unwrap()).exits(0);
    assert_eq!(run.stdout, "ann|orders|1\n", "{run:?}");
    let sql = "drop schema fencepost cascade";
    let removed =
        Outcome::of(home.command("psql").args(["-X", "-q", "-c", sql]).envs(variables()).output().unwrap());
    removed.exits(0);
    assert!(!format!("{run:?}").contains("s3cret"), "{run:?}");
    assert!(!server.log().contains("FATAL"), "{}", server.log());
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn url_without_a_host_goes_where_psql_goes() {
    let server = with_orders(PostgresServer::start());
    let home = Home::on("postgres://");
    let (port, folder) = (server.port().to_string(), server.socket_directory().display().to_string());
    let of = |names: &[(&'static str, &str)]| -> Vec<_> {
        names.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    let who = [("PGPORT", port.as_str()), ("PGUSER", "ann"), ("PGDATABASE", "orders")];
    for host in ["127.0.0.1", "localhost", &folder] {
        let mut variables = of(&who);
        variables.push(("PGHOST", host.to_owned()));
        reaches(&home, &server, &variables);
    }
    let mut variables = of(&who);
    variables.push(("PGHOSTADDR", "127.0.0.1".to_owned()));
    reaches(&home, &server, &variables);
    let service = format!("[orders]\nhost={folder}\nport={port}\nuser=ann\ndbname=orders\n");
    home.write("services", &service);
    let file = home.path("services").display().to_string();
    reaches(&home, &server, &of(&[("PGSERVICEFILE", &file), ("PGSERVICE", "orders")]));
    home.write(".pg_service.conf", &service);
    // The home directory of psql is that of HOME, or of the user.
    reaches(
        &home,
        &server,
        &of(&[
            ("PGSERVICEFILE", &home.path(".pg_service.conf").display().to_string()),
            ("PGSERVICE", "orders"),
        ]),
    );
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn part_of_a_url_comes_before_the_environment() {
    let server = with_orders(PostgresServer::start());
    let (port, folder) = (server.port(), server.socket_directory().display().to_string());
    let encoded = folder.replace('/', "%2F");
    let wrong = [("PGHOST", "127.0.0.1"), ("PGPORT", "1"), ("PGUSER", "nobody"), ("PGDATABASE", "none")];
    for url in [
        format!("postgres://ann@127.0.0.1:{port}/orders"),
        format!("postgresql://ann@localhost:{port}/orders"),
        format!("postgres://ann@{encoded}:{port}/orders"),
        format!("postgres:///orders?host={folder}&port={port}&user=ann"),
        format!("postgres://ann@127.0.0.1:1,127.0.0.1:{port}/orders"),
    ] {
        let home = Home::on(&url);
        let run =
            Outcome::of(home.fencepost(["run", "-n", "demo", "--", "true"]).envs(wrong).output().unwrap());
        assert_eq!(run.code, Some(0), "{url}: {run:?}");
        let found = fencepost_testkit::servers::psql(
            &server.url_of("ann", "orders"),
            "select count(*) from fencepost.lock where name = 'demo'; drop schema fencepost cascade",
        );
        assert_eq!(found.as_deref(), Ok("1"), "{url}");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn password_comes_from_the_environment_or_its_file() {
    let server = with_orders(PostgresSetup::default().password("s3cret-root").start());
    let home = Home::on("postgres://");
    let place = [
        ("PGHOST", "127.0.0.1".to_owned()),
        ("PGPORT", server.port().to_string()),
        ("PGUSER", "ann".to_owned()),
        ("PGDATABASE", "orders".to_owned()),
    ];
    let with = |more: &[(&'static str, String)]| [&place[..], more].concat();
    reaches(&home, &server, &with(&[("PGPASSWORD", "s3cret-ann".to_owned())]));
    home.write("passwords", &format!("127.0.0.1:{}:orders:ann:s3cret-ann\n", server.port()));
    let file = home.path("passwords").display().to_string();
    // One that others can read is not used, as psql does not use it.
    let run = |variables: &[(&str, String)]| {
        let mut run = home.fencepost(["run", "-n", "demo", "--", "true"]);
        Outcome::of(run.envs(variables.iter().map(|(name, value)| (*name, value))).output().unwrap())
    };
    let refused = run(&with(&[("PGPASSFILE", file.clone())])).exits(77);
    assert!(refused.stderr.contains("passwords") && !refused.stderr.contains("s3cret"), "{}", refused.stderr);
    home.shell("chmod 600 passwords; cp -p passwords .pgpass").exits(0);
    reaches(&home, &server, &with(&[("PGPASSFILE", file)]));
    run(&with(&[])).exits(0);
}

/// A password with what a URL cannot hold, as it stands in one, and every form of it.
const SECRET: &str = "s3cr%25t+%40of-this";
const FORMS: [&str; 4] = [SECRET, "s3cr%t+@of-this", "s3cr%25t", "s3cr%t"];

/// A server with that password, and a home whose configuration has it.
fn guarded() -> (PostgresServer, Home) {
    let server = PostgresSetup::default().password("s3cr%t+@of-this").start();
    let home = Home::new();
    configure(&home, &url(server.port(), ""));
    (server, home)
}

fn url(port: u16, rest: &str) -> String {
    format!("postgres://postgres:{SECRET}{rest}@127.0.0.1:{port}/postgres")
}

fn configure(home: &Home, url: &str) {
    let rules = format!("[backends.p]\nurl = {url:?}\n[[locks]]\nmatch = '**'\nbackend = 'p'\n");
    home.write("fencepost.toml", &rules);
}

#[track_caller]
fn assert_is_secret(said: &[String]) {
    for form in FORMS {
        let shown = said.iter().find(|text| text.contains(form));
        assert!(shown.is_none(), "{form} in {shown:?}");
    }
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn password_is_shown_nowhere() {
    let (_server, home) = guarded();
    let script = "env >environment; echo >held; while [ ! -e stop ]; do sleep 0.02; done";
    let args = ["-v", "run", "--report", "report", "--events", "events", "demo", "--", "sh", "-c", script];
    let holder = home.start(args);
    home.await_line("held");
    let waiter = home.start(["-v", "run", "demo", "--", "true"]);
    home.await_waiter("demo");
    let mut said = vec![home.shell("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").stdout];
    assert!(said[0].contains("fencepost") && said[0].contains("demo"), "the runs are seen there: {said:?}");
    for args in [
        &["status", "demo"][..],
        &["--json", "status", "demo"],
        &["-v", "list"],
        &["explain", "demo"],
        &["--json", "explain", "demo"],
        &["-v", "run", "-n", "demo", "--", "env"],
        &["config", "check"],
    ] {
        said.push(format!("{:?}", home.run(args)));
    }
    home.write("stop", "");
    said.extend([holder, waiter].map(|run| format!("{:?}", run.ends().exits(0))));
    said.extend(["environment", "report", "events"].map(|file| home.read(file)));
    assert_is_secret(&said);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn password_is_not_shown_where_something_goes_wrong() {
    let (server, home) = guarded();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let right = url(server.port(), "");
    let mut said = Vec::new();
    for (url, code) in [
        (url(server.port(), "-wrong"), 77),
        (url(dead, ""), 69),
        (format!("{right}?pooler=odd"), 78),
        (format!("{right}?nonsense=1"), 78),
        (format!("{right}?sslmode=require"), 69),
        (format!("{right}?sslmode=verify-full"), 78),
        (format!("{}/none", right.trim_end_matches("/postgres")), 78),
    ] {
        configure(&home, &url);
        let run = home.run(["-v", "run", "-n", "--report", "report", "demo", "--", "true"]);
        assert_eq!(run.code, Some(code), "{run:?}");
        said.push(format!("{run:?}{}", home.read("report")));
    }
    std::fs::remove_file(home.path("fencepost.toml")).unwrap();
    let run = home.run(["--backend", &right, "run", "demo", "--", "env"]).exits(0);
    assert!(run.stderr.contains("warning"), "anybody on the host can read it there: {}", run.stderr);
    said.push(format!("{run:?}"));
    assert_is_secret(&said);
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn variable_with_a_url_is_passed_on_untouched_and_a_run_within_uses_it() {
    let scene = Scene::new();
    let script = "fencepost run -n other -- true && fencepost run -n demo -- true";
    scene.home.run(["run", "demo", "--", "sh", "-c", script]).exits(75);
    let holder =
        Running::of(&mut scene.home.fencepost(["run", "demo", "--", "sh", "-c", "echo >held; sleep 60"]));
    scene.home.await_file("held");
    drop(holder);
    eventually("no session", || scene.sessions() == 0);
}
