//! A fence in an object store, from the command line; and a build that has none.

use crate::support::Home;

#[test]
#[cfg(not(feature = "objectstore"))]
fn build_without_object_stores_names_the_feature() {
    for url in ["s3://bucket/exports", "gs://bucket", "az://container"] {
        let refused = Home::new().run(["fence", "seal", url, "ledger", "7"]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.stderr.contains("the feature `objectstore`"), "{refused:?}");
    }
}

#[cfg(feature = "objectstore")]
mod with_the_feature {
    use std::ffi::OsStr;

    use fencepost_testkit::servers::{Ignored, S3Server};

    use super::Home;
    use crate::support::{Outcome, json};

    const SECRET: &str = "hunter2-of-this-test";

    fn url(server: &S3Server) -> String {
        format!("s3://bucket/exports?endpoint=http://{}&allow_http=on", server.address())
    }

    /// Runs it with credentials, as a user has them.
    fn run(home: &Home, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
        let mut command = home.fencepost(args);
        let command = command.env("AWS_ACCESS_KEY_ID", "app").env("AWS_SECRET_ACCESS_KEY", SECRET);
        let outcome = Outcome::of(command.output().unwrap());
        assert!(!format!("{outcome:?}").contains(SECRET), "{outcome:?}");
        outcome
    }

    #[test]
    fn result_of_a_stale_run_is_not_published_in_a_bucket() {
        let (home, server) = (Home::new(), S3Server::start());
        let url = url(&server);
        home.write("totals.csv", "a,1\n");
        run(&home, ["fence", "install", &url]).exits(0);
        let backend = format!("file:{}", home.path("locks").display());
        let publish = format!("fencepost fence publish '{url}' totals.csv");
        let run_of = |script: &str| {
            run(
                &home,
                ["run", "-n", "--backend", &backend, "--fence", &url, "ledger", "--", "sh", "-c", script],
            )
        };
        run_of(&format!("{publish} && export -p >old")).exits(0);
        let late = run_of(&format!("(. ./old && {publish}); echo $?")).exits(0);
        assert_eq!(late.stdout, "79\n", "{late:?}");
        let shown = json(&run(&home, ["fence", "show", "--json", &url, "ledger"]).exits(0));
        assert_eq!(shown["fence"], "s3");
        run(&home, ["fence", "forget", "--yes", &url, "ledger"]).exits(0);
        run(&home, ["fence", "show", &url, "ledger"]).exits(1);
        assert!(!server.methods().contains("DELETE"));
    }

    #[test]
    fn run_in_front_of_a_store_that_ignores_conditions_starts_nothing() {
        let (home, server) = (Home::new(), S3Server::start());
        server.ignore(Ignored::IfMatch);
        let refused = run(&home, ["run", "-n", "--fence", &url(&server), "ledger", "--", "touch", "ran"]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.stderr.contains("ignores the condition"), "{refused:?}");
        assert!(!home.path("ran").exists());
    }

    #[test]
    fn secret_in_the_url_is_refused_and_not_shown() {
        let url = format!("s3://bucket?secret_access_key={SECRET}");
        let refused = run(&Home::new(), ["fence", "show", &url]).exits(64);
        assert!(refused.stderr.contains("secret_access_key"), "{refused:?}");
    }
}
