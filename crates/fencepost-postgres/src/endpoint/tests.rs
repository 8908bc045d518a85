//! What URLs, services and the environment mean together, compared with libpq 15 by hand.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fencepost_core::ErrorKind;
use proptest::prelude::*;
use tempfile::TempDir;

use super::tls::{Identity, Roots};
use super::*;

/// A machine of its own: user `os`, an empty home, and nothing in the environment but what is said.
struct Machine {
    folder: TempDir,
    variables: HashMap<String, String>,
}

impl Machine {
    fn new(variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { folder: tempfile::tempdir().unwrap(), variables: variables.iter().map(owned).collect() }
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn environment(&self) -> Environment {
        let variables = self.variables.clone();
        Environment {
            variable: Box::new(move |name| variables.get(name).map(Into::into)),
            user: Some("os".to_owned()),
            home: Some(self.folder.path().to_owned()),
            socket_directory: PathBuf::from("/run/pg"),
            service_directory: self.folder.path().join("etc"),
        }
    }

    fn read(&self, url: &str) -> Result<Endpoint> {
        Endpoint::of(&url.parse()?, &self.environment())
    }
}

/// The endpoint in one line: `user:password@hosts/database`.
fn shown(endpoint: &Endpoint) -> String {
    let hosts: Vec<_> = endpoint.hosts.iter().map(ToString::to_string).collect();
    let password = endpoint.password_for(&endpoint.hosts[0]).password;
    let password = password.map(|password| format!(":{}", password.expose())).unwrap_or_default();
    format!("{}{password}@{}/{}", endpoint.user, hosts.join(","), endpoint.database)
}

#[track_caller]
fn check(variables: &[(&str, &str)], url: &str, expected: &str) {
    let endpoint = Machine::new(variables).read(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    assert_eq!(shown(&endpoint), expected, "{url}");
}

#[track_caller]
fn refused(machine: &Machine, url: &str, expected: &str) {
    let error = machine.read(url).expect_err(url);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
    let text = format!("{error} {}", error.advice().unwrap_or_default());
    assert!(text.contains(expected), "{url}: {text}");
    assert!(!format!("{text} {error:?}").contains("s3cret"), "{url}: {text}");
}

#[test]
fn parts_of_a_url_are_read() {
    for (url, expected) in [
        ("postgres://ann:p%40s%3As@db:7000/orders", "ann:p@s:s@db:7000/orders"),
        ("postgresql://ann:a:b@db/x", "ann:a:b@db:5432/x"),
        ("postgres://h", "os@h:5432/os"),
        ("postgres://ann@h", "ann@h:5432/ann"),
        ("postgres://", "os@/run/pg/.s.PGSQL.5432/os"),
        ("postgres:///db", "os@/run/pg/.s.PGSQL.5432/db"),
        ("postgres://ann@/db", "ann@/run/pg/.s.PGSQL.5432/db"),
        ("postgres://:pw@h/", "os:pw@h:5432/os"),
        ("postgres://:7000", "os@/run/pg/.s.PGSQL.7000/os"),
        ("postgres://%2Fvar%2Frun:7000/db", "os@/var/run/.s.PGSQL.7000/db"),
        ("postgres:///db?host=/var/run", "os@/var/run/.s.PGSQL.5432/db"),
        ("postgres://[::1]:7000,[fe80::1]/x", "os@[::1]:7000,[fe80::1]:5432/x"),
        ("postgres://h/a%2Fb?user=u%26&password=p%25", "u&:p%@h:5432/a/b"),
        ("postgres://h/a/b", "os@h:5432/a/b"),
    ] {
        check(&[], url, expected);
    }
}

#[test]
fn hosts_and_ports_are_paired() {
    for (url, expected) in [
        ("postgres://a:1,b:2/x", "os@a:1,b:2/x"),
        ("postgres://a,b/x?port=3", "os@a:3,b:3/x"),
        ("postgres://a,b/x?port=3,%204%20", "os@a:3,b:4/x"),
        ("postgres://a,b:2/x", "os@a:5432,b:2/x"),
        ("postgres://a,,%2Fs/x", "os@a:5432,/run/pg/.s.PGSQL.5432,/s/.s.PGSQL.5432/x"),
        ("postgres://a%2Cb/x", "os@a:5432,b:5432/x"),
        ("postgres://a/x?hostaddr=::1", "os@a:5432/x"),
        ("postgres:///x?hostaddr=::1,127.0.0.1", "os@[::1]:5432,127.0.0.1:5432/x"),
        ("postgres://a,b/x?hostaddr=,127.0.0.1", "os@a:5432,b:5432/x"),
    ] {
        check(&[], url, expected);
    }
    let endpoint = Machine::new(&[]).read("postgres://a,%2Fs/x?hostaddr=127.0.0.1,").unwrap();
    let paths: Vec<_> = endpoint.hosts.iter().map(Host::socket_path).collect();
    assert_eq!(paths, [None, Some(PathBuf::from("/s/.s.PGSQL.5432"))]);
    let addresses = endpoint.hosts.iter().map(|host| match host {
        Host::Network { address, .. } => address.map(|address| address.to_string()),
        Host::Socket { .. } => None,
    });
    assert_eq!(addresses.collect::<Vec<_>>(), [Some("127.0.0.1".to_owned()), None]);
}

#[test]
fn url_counts_before_the_environment() {
    let variables = [
        ("PGHOST", "e1,e2"),
        ("PGPORT", "7"),
        ("PGDATABASE", "edb"),
        ("PGUSER", "eve"),
        ("PGPASSWORD", "epw"),
        ("PGAPPNAME", "ignored"),
    ];
    for (url, expected) in [
        ("postgres://", "eve:epw@e1:7,e2:7/edb"),
        ("postgres:///db", "eve:epw@e1:7,e2:7/db"),
        ("postgres://:9", "eve:epw@e1:9,e2:9/edb"),
        ("postgres://ann@h/", "ann:epw@h:7/edb"),
        ("postgres://a,b", "eve:epw@a:5432,b:5432/edb"),
        ("postgres://h:1?host=q&port=2&user=u&password=p&dbname=d", "u:p@q:2/d"),
        // What is empty counts as well: no user but that of the system, no database but the user's.
        ("postgres:///?host=&port=&user=&dbname=&password=", "os@/run/pg/.s.PGSQL.5432/os"),
    ] {
        check(&variables, url, expected);
    }
    check(&[("PGHOSTADDR", "127.0.0.9"), ("PGPORT", "")], "postgres://h/x", "os@h:5432/x");
}

const SERVICES: &str = "[one]\nhost=sh\nport=11\nuser=sue\npassword=s3cret\nsslmode=require\n\
                        [bad]\ns3cret\n[weak]\nsslmode=weak\n[crl]\nsslcrl=x\n";

#[test]
fn service_counts_between_url_and_environment() {
    let machine = Machine::new(&[("PGPORT", "7"), ("PGDATABASE", "edb"), ("PGSSLMODE", "disable")]);
    machine.write(".pg_service.conf", SERVICES);
    let endpoint = machine.read("postgres://u@/?service=one").unwrap();
    assert_eq!(shown(&endpoint), "u:s3cret@sh:11/edb");
    assert_eq!(endpoint.tls.mode, SslMode::Require);
    let mut machine = Machine::new(&[("PGSERVICE", "one")]);
    machine.write("etc/pg_service.conf", SERVICES);
    assert_eq!(shown(&machine.read("postgres://:4/db").unwrap()), "sue:s3cret@sh:4/db");
    let file = machine.write("mine", "[two]\nhost=mine\n");
    machine.variables.insert("PGSERVICEFILE".to_owned(), file.to_str().unwrap().to_owned());
    assert_eq!(shown(&machine.read("postgres:///x?service=two").unwrap()), "os@mine:5432/x");
    assert_eq!(shown(&machine.read("postgres:///x").unwrap()), "sue:s3cret@sh:11/x");
}

#[test]
fn broken_service_is_named_by_file_and_line() {
    let mut machine = Machine::new(&[]);
    refused(&machine, "postgres://?service=one", "there is no service file");
    let file = machine.write(".pg_service.conf", SERVICES);
    let file = file.display();
    for (service, expected) in [
        ("none", format!("write [none] and its settings in {file}")),
        ("bad", format!("in {file}, line 8: it is not of the form keyword=value")),
        ("weak", format!("sslmode=\"weak\" in {file}, line 10, is none of disable, allow")),
        ("crl", format!("sslcrl=\"x\" in {file}, line 12, asks for what fencepost does not do")),
    ] {
        refused(&machine, &format!("postgres://h?service={service}"), &expected);
    }
    machine.variables.insert("PGSERVICEFILE".to_owned(), "/nowhere/at/all".to_owned());
    refused(&machine, "postgres://h?service=one", "cannot read the service file /nowhere/at/all");
}

#[test]
fn password_file_answers_for_each_host() {
    let mut machine = Machine::new(&[]);
    let lines = "a:1:db:ann:one\nlocalhost:*:db:ann:here\n/other:*:*:*:there\n127.0.0.1:*:*:*:number\n";
    machine.write(".pgpass", lines);
    let endpoint = machine.read("postgres://ann@a:1,b,,%2Fother/db?password=").unwrap();
    let passwords = endpoint.hosts.iter().map(|host| endpoint.password_for(host).password);
    let passwords: Vec<_> = passwords.map(|password| password.map(|it| it.expose().to_owned())).collect();
    assert_eq!(
        passwords.iter().map(Option::as_deref).collect::<Vec<_>>(),
        [Some("one"), None, Some("here"), Some("there")]
    );
    for (url, expected) in [
        ("postgres://ann:two@a:1/db", "ann:two@a:1/db"),
        ("postgres://ann@a:1/other", "ann@a:1/other"),
        ("postgres://x@/y?hostaddr=127.0.0.1", "x:number@127.0.0.1:5432/y"),
        ("postgres://x@b/y?hostaddr=127.0.0.1", "x@b:5432/y"),
    ] {
        assert_eq!(shown(&machine.read(url).unwrap()), expected);
    }
    let file = machine.write("mine", "*:*:*:*:mine");
    machine.variables.insert("PGPASSFILE".to_owned(), file.to_str().unwrap().to_owned());
    assert_eq!(shown(&machine.read("postgres://ann@a:1/db").unwrap()), "ann:mine@a:1/db");
    let url = format!("postgres://h?passfile={}", machine.folder.path().join(".pgpass").display());
    assert_eq!(shown(&machine.read(&url).unwrap()), "os@h:5432/os");
}

#[test]
fn stamps_of_a_run_are_left_to_the_programs_that_write() {
    for (written, expected) in [
        ("-c x=1", Some("-c x=1")),
        (r#"-c fencepost.stamps={"a":[7,"b"]}"#, None),
        (r#"-c x=1 -c fencepost.stamps={"a":[7,"b"]}"#, Some("-c x=1")),
        (r#"-c x=1 -c fencepost.stamps={"a":[7,"b"]} -c y=a\ b"#, Some(r"-c x=1 -c y=a\ b")),
    ] {
        let machine = Machine::new(&[("PGOPTIONS", written)]);
        assert_eq!(machine.read("postgres://h").unwrap().startup_options.as_deref(), expected, "{written}");
    }
}

#[test]
fn tls_is_read() {
    let machine = Machine::new(&[("PGCHANNELBINDING", "require"), ("PGOPTIONS", "-c x=1")]);
    let endpoint = machine.read("postgres://h").unwrap();
    let expected = Tls {
        mode: SslMode::Prefer,
        roots: Roots::None,
        identity: None,
        channel_binding: ChannelBinding::Require,
        warning: None,
    };
    assert_eq!((endpoint.tls, endpoint.startup_options.as_deref()), (expected, Some("-c x=1")));
    let root = machine.write(".postgresql/root.crt", "");
    let certificate = machine.write(".postgresql/postgresql.crt", "");
    machine.write(".postgresql/root.crl", "");
    let tls = machine.read("postgres://h?sslmode=verify-ca&sslkey=k").unwrap().tls;
    assert_eq!((tls.mode, tls.roots), (SslMode::VerifyCa, Roots::File(root)));
    assert_eq!(tls.identity, Some(Identity { certificate, key: PathBuf::from("k") }));
    assert!(tls.warning.unwrap().contains("root.crl"));
    let tls = machine.read("postgres://h?sslrootcert=system&sslcert=c").unwrap().tls;
    assert_eq!((tls.mode, tls.roots), (SslMode::VerifyFull, Roots::System));
    let key = machine.folder.path().join(".postgresql/postgresql.key");
    assert_eq!(tls.identity, Some(Identity { certificate: PathBuf::from("c"), key }));
    let tls = machine.read("postgres://h?sslrootcert=ca&channel_binding=disable").unwrap().tls;
    assert_eq!(tls.roots, Roots::File(PathBuf::from("ca")));
    assert_eq!(tls.channel_binding, ChannelBinding::Disable);
}

#[test]
fn verification_needs_roots_where_there_is_a_network() {
    let machine = Machine::new(&[]);
    refused(&machine, "postgres://h?sslmode=verify-full", "no root certificate");
    refused(&machine, "postgres://h?sslmode=require&sslrootcert=system", "too weak");
    assert!(machine.read("postgres:///x?sslmode=verify-full").is_ok());
}

#[test]
fn time_and_target_are_read() {
    for (query, seconds) in [
        ("", None),
        ("connect_timeout=0", None),
        ("connect_timeout=-1", None),
        ("connect_timeout=1", Some(2)),
        ("connect_timeout=%2010", Some(10)),
    ] {
        let endpoint = Machine::new(&[]).read(&format!("postgres://h?{query}")).unwrap();
        assert_eq!(endpoint.connect_timeout, seconds.map(Duration::from_secs), "{query}");
    }
    for (name, target) in
        [("any", Target::Any), ("read-write", Target::ReadWrite), ("primary", Target::Primary)]
    {
        let machine = Machine::new(&[("PGTARGETSESSIONATTRS", name)]);
        assert_eq!(machine.read("postgres://h").unwrap().target, target);
    }
}

#[test]
fn own_options_stand_beside_those_of_libpq() {
    let url = "postgres://h?max_ttl=5s&sslmode=require&on_pause=expire&quarantine=off&pooler=session";
    assert_eq!(Machine::new(&[]).read(url).unwrap().tls.mode, SslMode::Require);
    let options = Options::of(&url.parse().unwrap()).unwrap();
    assert_eq!((options.max_ttl, options.on_pause), (Duration::from_secs(5), PausePolicy::Expire));
}

#[test]
fn odd_urls_are_refused() {
    let machine = Machine::new(&[]);
    for (url, expected) in [
        ("postgres:h", "write //"),
        ("postgres://h:x", "not a port"),
        ("postgres://h:0", "not a port"),
        ("postgres://h:65536", "not a port"),
        ("postgres://[::1", "the ] of an address"),
        ("postgres://[]", "an address is missing"),
        ("postgres://[::1]x", "only a port"),
        ("postgres://a,b?port=1,2,3", "3 parts for 2 hosts"),
        ("postgres://a,b?hostaddr=::1", "2 parts for 1 addresses"),
        ("postgres://a?hostaddr=b", "not an IP address"),
        ("postgres://%40abstract", "abstract socket"),
        ("postgres://h/%zz", "the dbname has a %"),
        ("postgres://h/a%00", "the dbname has a %00"),
        ("postgres://u:s3cret%@h", "%25"),
        ("postgres://h/%ff", "not UTF-8"),
        ("postgres://u:s3cret@x@h/db", "%40"),
        ("postgres://u:x/s3cret@h/db", "%2F"),
        ("postgres://u:x?s3cret@h/db", "%3F"),
        ("postgres://u:5432/db?user=s3cret@h", "%40"),
        ("postgres://h?user=a&user=b", "given twice"),
        ("postgres://h?max=1", "takes max_ttl"),
        ("postgres://h?application_name=x", "fencepost sets it"),
        ("postgres://h?keepalives_idle=1", "keep-alive"),
        ("postgres://h?sslcrl=x", "revoked"),
        ("postgres://h?sslmode=on", "none of disable"),
        ("postgres://h?connect_timeout=1x", "number of seconds"),
        ("postgres://h?connect_timeout=", "number of seconds"),
        ("postgres://h?channel_binding=", "none of disable, prefer, require"),
        ("postgres://h?target_session_attrs=standby", "only a primary"),
        ("postgres://h?target_session_attrs=read-only", "only a primary"),
        ("postgres://h?target_session_attrs=prefer-standby", "only a primary"),
        ("postgres://h?target_session_attrs=", "none of any, read-write"),
    ] {
        refused(&machine, url, expected);
    }
}

#[test]
fn odd_surroundings_are_refused() {
    for (name, value, expected) in [
        ("PGSSLMODE", "", "PGSSLMODE=\"\" is none of"),
        ("PGPORT", "x", "PGPORT=\"x\" is not a port"),
        ("PGSSLCRL", "x", "asks for what fencepost does not do"),
        ("PGREQUIREPEER", "postgres", "asks for what fencepost does not do"),
        ("PGTARGETSESSIONATTRS", "standby", "only a primary"),
    ] {
        refused(&Machine::new(&[(name, value)]), "postgres://u:s3cret@h", expected);
    }
    let nameless = Environment { user: None, ..Machine::new(&[]).environment() };
    let error = Endpoint::of(&"postgres://h".parse().unwrap(), &nameless).unwrap_err();
    assert!(error.advice().unwrap().contains("PGUSER"));
    let odd = |_: &str| Some(std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]));
    let odd = Environment { variable: Box::new(odd), ..Machine::new(&[]).environment() };
    let error = Endpoint::of(&"postgres://h".parse().unwrap(), &odd).unwrap_err();
    assert!(error.to_string().contains("is not UTF-8"));
}

#[test]
fn process_has_surroundings() {
    let environment = Environment::of_process();
    assert!(environment.user.is_some());
    assert!(environment.socket_directory.starts_with(Path::new("/")));
    assert_eq!(format!("{environment:?}"), "Environment");
}

proptest! {
    #[test]
    fn any_url_is_read_or_refused(rest in "\\PC{0,40}|[\\[\\]@:/?,%&=a-z0-9]{0,40}", query in "[a-z_]{0,8}=[^&]{0,9}") {
        for text in [format!("postgres:{rest}"), format!("postgresql://{rest}"), format!("postgres://{rest}?{query}")] {
            if let Ok(endpoint) = Machine::new(&[]).read(&text) {
                prop_assert!(!endpoint.hosts.is_empty());
            }
        }
    }

    #[test]
    fn no_password_is_shown(
        before in "[a-z0-9?&=/:@%,]{0,12}",
        after in "[a-z?&=/:@%,]{0,6}",
        form in 0..3,
    ) {
        let password = format!("{before}s3cret{after}");
        let text = match form {
            0 => format!("postgres://user:{password}@host:5432/db?sslmode=prefer"),
            1 => format!("postgres://:{password}@/db?service=none"),
            _ => format!("postgres://host/db?password={}&sslmode=none", password.replace('&', "")),
        };
        let shown = match Machine::new(&[]).read(&text) {
            Ok(endpoint) => format!("{endpoint:?} {:?}", endpoint.password_for(&endpoint.hosts[0])),
            Err(error) => format!("{error} {error:?} {:?}", error.advice()),
        };
        prop_assert!(!shown.contains("s3cret"), "{}", shown);
    }

    #[test]
    fn encoded_password_comes_back(password in "\\PC{1,20}") {
        let encoded = percent_encoding::percent_encode(password.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
        let endpoint = Machine::new(&[]).read(&format!("postgres://u:{encoded}@h")).unwrap();
        prop_assert_eq!(shown(&endpoint), format!("u:{password}@h:5432/u"));
    }
}
