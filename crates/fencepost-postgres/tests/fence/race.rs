//! Many who seal and write at once: the mark never falls, and what is accepted is in the order of the tokens.

use fencepost_core::Clock;
use fencepost_testkit::servers::PostgresClient;

use crate::stage::{NONE, Stage, code};

/// Sessions at once, and how often each seals and writes.
const SESSIONS: usize = 8;
const ROUNDS: u64 = 1_250;

/// The number of an entry is drawn when the guard has let its write in, and no newer seal comes before its commit.
const TABLES: &str = "
create table entry (number bigserial, token bigint not null);
create table unguarded (like entry including all);
create table mark_seen (number bigserial, token bigint not null);
grant all on all tables in schema public to app;
grant all on all sequences in schema public to app;
grant usage on schema fencepost to app;
";

/// How often a token follows a greater one.
const DESCENTS: &str = "select count(*) from (select token, lag(token) over (order by number) as before from TABLE) t \
                        where token < before";

/// Seals a token and writes with it, whether it was sealed or not; whether the guarded write was accepted.
fn round(session: &mut PostgresClient, token: u64) -> bool {
    let seal = session.query(&format!("select fencepost.seal('race', {token}, 'h{token}')"));
    assert!(["ok", "FP002"].contains(&code(&seal)), "{seal:?}");
    session.query(&format!(r#"set fencepost.stamps = '{{"race":[{token},"h{token}"]}}'"#)).unwrap();
    session.query(&format!("insert into unguarded (token) values ({token})")).unwrap();
    let written = session.query(&format!("insert into entry (token) values ({token})"));
    assert!(["ok", "FP002"].contains(&code(&written)), "{written:?}");
    written.is_ok()
}

/// Tokens of all sessions grow slowly, and are far from being in order.
fn race(mut session: PostgresClient) -> usize {
    let clock = Clock::system();
    (0..ROUNDS)
        .filter(|round_number| {
            let drawn = clock.random() % 200;
            round(&mut session, 1 + round_number * 10 + drawn)
        })
        .count()
}

#[test]
#[cfg_attr(not(postgres_server), ignore = "its server is not installed")]
fn accepted_tokens_never_fall_however_many_seal_at_once() {
    let stage = Stage::new();
    stage.server.execute(TABLES);
    stage.guard("entry", "race");
    stage.server.execute(
        "create function note_mark() returns trigger language plpgsql as \
         $$ begin insert into public.mark_seen (token) values (new.token); return null; end $$; \
         create trigger note_mark after update on fencepost.fence for each row execute function note_mark()",
    );
    let sessions: Vec<_> = (0..SESSIONS).map(|_| stage.session(NONE)).collect();
    let threads: Vec<_> = sessions.into_iter().map(|session| std::thread::spawn(|| race(session))).collect();
    let accepted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let descents = |table: &str| stage.server.query(&DESCENTS.replace("TABLE", table));
    assert_eq!(descents("entry"), "0");
    assert_eq!(descents("mark_seen"), "0");
    assert_eq!(stage.server.query("select count(*) from entry"), accepted.to_string());
    let tries = SESSIONS * usize::try_from(ROUNDS).unwrap();
    assert!(accepted > tries / 50 && accepted < tries, "{accepted} of {tries} were accepted");
    assert_ne!(descents("unguarded"), "0", "the control: without a guard they fall");
}
