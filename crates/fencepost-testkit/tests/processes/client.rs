//! A client of the server of these tests: a connection a claim, closed when the call or the claim is dropped.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{
    AcquireRequest, Backend, Claim, Clock, Descriptor, Error, ErrorKind, Examination, Expiry, FencingToken,
    Grant, Handover, LockName, LockState, Loss, NamePrefix, Profile, Renewal, Result, Revoked, Scope,
    Waiting,
};
use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, StreamExt};

use crate::wire;

/// A server's locks that run out.
pub(crate) const AFTER_TTL: Profile = Profile::weakest("server")
    .expiry(Expiry::AfterTtl)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Server)
    .revocable()
    .rests()
    .longest_ttl(Some(Duration::from_hours(1)));

/// The same without a ttl: a hold lasts as long as one descriptor of it is open anywhere.
pub(crate) const WITH_PROCESS: Profile = Profile::weakest("server")
    .expiry(Expiry::WithProcess)
    .waiting(Waiting::Queued)
    .loss(Loss::Pushed)
    .scope(Scope::Host)
    .rests()
    .longest_ttl(None);

#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    profile: Profile,
    clock: Clock,
}

impl Client {
    pub(crate) fn new(socket: PathBuf, profile: Profile) -> Self {
        Self { socket, profile, clock: Clock::system() }
    }

    /// Sends a request and reads the whole answer.
    fn ask(&self, request: &str) -> Result<Vec<String>> {
        let stream = connect(&self.socket, request)?;
        stream.shutdown(Shutdown::Write).map_err(gone)?;
        BufReader::new(stream).lines().collect::<std::io::Result<_>>().map_err(gone)
    }

    fn ask_to(&self, request: &str) -> Result<()> {
        let answer = self.ask(request)?;
        match wire::fields(&answer[0])[..] {
            ["done"] => Ok(()),
            ["error", ref error @ ..] => Err(wire::read_error(error)),
            ref other => panic!("the server answered {other:?}"),
        }
    }
}

fn connect(socket: &Path, request: &str) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).map_err(gone)?;
    stream.write_all(request.as_bytes()).map_err(gone)?;
    Ok(stream)
}

fn gone(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "talk to the server", "it is gone").caused_by(error)
}

fn states(lines: &[String]) -> Vec<LockState> {
    let fields = lines.iter().map(|line| wire::fields(line));
    fields.filter(|fields| fields[0] == "state").map(|fields| wire::read_state(&fields[1..])).collect()
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server:{}", self.socket.display())
    }
}

#[async_trait]
impl Backend for Client {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Box<dyn Claim>> {
        let mut link = Link::open(&self.socket, &wire::acquire(request))?;
        let (token, ttl) = link.granted().await?;
        let lasts = self.profile.expiry == Expiry::WithProcess;
        let begin = || connect(&self.socket, &wire::line(&["hold", &request.holder.to_string()]));
        let hold = lasts.then(begin).transpose()?.map(|stream| Arc::new(OwnedFd::from(stream)));
        // The grant may be long ago by now; only what the server still confirms counts, and from here.
        let counted_from = self.clock.now();
        link.say("claim\n");
        link.claimed().await?;
        let (name, holder) = (request.name.clone(), request.holder);
        let grant = Grant { name, holder, token, ttl: (!lasts).then_some(ttl), counted_from, slack: None };
        Ok(Box::new(ServerClaim { link, grant, hold, clock: self.clock.clone(), renewals: 0 }))
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let answer = self.ask(&wire::line(&["inspect", name.as_str()]))?;
        Ok(states(&answer).remove(0))
    }

    async fn list(&self, prefix: &NamePrefix) -> Result<Vec<LockState>> {
        // The prefix itself stays inside its type, so all are asked for.
        let mut states = states(&self.ask(&wire::line(&["list", ""]))?);
        states.retain(|state| prefix.matches(&state.name));
        Ok(states)
    }

    async fn revoke(&self, name: &LockName, token: FencingToken, reason: &str) -> Result<Revoked> {
        if !self.profile.revoke {
            return Err(Error::new(ErrorKind::Unsupported, "revoke the lease", "it lasts as its process"));
        }
        let answer = self.ask(&wire::line(&["revoke", &token.to_string(), reason, name.as_str()]))?;
        Ok(if answer[0] == "done" { Revoked::Done } else { Revoked::NotCurrent })
    }

    async fn lift(&self, name: &LockName, to: FencingToken) -> Result<()> {
        self.ask_to(&wire::line(&["lift", &to.to_string(), name.as_str()]))
    }

    async fn renew(&self, _: &Handover, _: Duration) -> Result<Renewal> {
        Err(Error::new(ErrorKind::Unsupported, "renew the lease", "it ends with its connection"))
    }

    async fn give_back(&self, handover: &Handover) -> Result<()> {
        if self.profile.expiry == Expiry::WithProcess {
            let what = "closing the descriptors does it";
            return Err(Error::new(ErrorKind::Unsupported, "give the lease back", what));
        }
        let Handover { lock, holder, token, .. } = handover;
        let fields = ["give back", &holder.to_string(), &token.to_string(), lock.as_str()];
        self.ask_to(&wire::line(&fields))
    }

    async fn examine(&self) -> Result<Examination> {
        Ok(Examination::default())
    }
}

type Lost = Shared<oneshot::Receiver<String>>;

/// A connection whose answers are read by a thread of its own, which ends with it.
#[derive(Debug)]
struct Link {
    stream: UnixStream,
    answers: mpsc::UnboundedReceiver<String>,
    lost: Lost,
}

impl Link {
    fn open(socket: &Path, request: &str) -> Result<Self> {
        let stream = connect(socket, request)?;
        let reader = BufReader::new(stream.try_clone().map_err(gone)?);
        let (answer, answers) = mpsc::unbounded();
        let (news, lost) = oneshot::channel();
        std::thread::spawn(move || sort(reader, &answer, news));
        Ok(Self { stream, answers, lost: lost.shared() })
    }

    fn say(&mut self, line: &str) {
        // A server that is gone is noticed when it does not answer.
        drop(self.stream.write_all(line.as_bytes()));
    }

    async fn answer(&mut self) -> Result<String> {
        let gone = || Error::new(ErrorKind::Unavailable, "talk to the server", "it has hung up");
        self.answers.next().await.ok_or_else(gone)
    }

    async fn granted(&mut self) -> Result<(FencingToken, Duration)> {
        let answer = self.answer().await?;
        match wire::fields(&answer)[..] {
            ["granted", token, ttl] => Ok((wire::read(token), Duration::from_nanos(wire::read(ttl)))),
            ["error", ref error @ ..] => Err(wire::read_error(error)),
            ref other => panic!("the server answered {other:?}"),
        }
    }

    async fn claimed(&mut self) -> Result<()> {
        let answer = self.answer().await?;
        match wire::fields(&answer)[..] {
            ["claimed"] => Ok(()),
            ["error", ref error @ ..] => Err(wire::read_error(error)),
            ref other => panic!("the server answered {other:?}"),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Unlike a process that is killed, a call that is dropped gives back what it may have been granted.
        self.say("release\n");
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

/// Answers to one side, the news of a loss to the other.
fn sort(
    reader: BufReader<UnixStream>,
    answers: &mpsc::UnboundedSender<String>,
    news: oneshot::Sender<String>,
) {
    let mut news = Some(news);
    for line in reader.lines().map_while(std::io::Result::ok) {
        if line.starts_with("lost\t") {
            news.take().map(|news| news.send(line));
        } else if answers.unbounded_send(line).is_err() {
            return;
        }
    }
}

#[derive(Debug)]
struct ServerClaim {
    link: Link,
    grant: Grant,
    hold: Option<Arc<OwnedFd>>,
    clock: Clock,
    renewals: u64,
}

#[async_trait]
impl Claim for ServerClaim {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    async fn renew(&mut self) -> Result<Renewal> {
        self.renewals += 1;
        let (number, counted_from) = (self.renewals.to_string(), self.clock.now());
        self.link.say(&wire::line(&["renew", &number]));
        loop {
            let answer = self.link.answer().await?;
            match wire::fields(&answer)[..] {
                ["renewed", answered] if answered == number => {
                    return Ok(Renewal { ttl: self.grant.ttl, counted_from });
                }
                // The answer to an earlier renewal that was given up.
                ["renewed", _] => {}
                ["refused", ref error @ ..] => return Err(wire::read_error(error)),
                ref other => panic!("the server answered {other:?}"),
            }
        }
    }

    fn lost(&self) -> BoxFuture<'static, Error> {
        let lost = self.link.lost.clone();
        Box::pin(async move {
            match lost.await {
                Ok(line) => wire::read_error(&wire::fields(&line)[1..]),
                // The server has hung up and says nothing of the lock.
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        let hold = self.hold.iter().map(Arc::clone);
        hold.map(|fd| Descriptor { fd, inheritable: false }).collect()
    }

    fn handover(&self) -> Option<Handover> {
        let Grant { name, holder, token, .. } = self.grant.clone();
        self.hold.is_none().then_some(Handover { lock: name, holder, token, detail: None })
    }

    fn detach(self: Box<Self>) {}

    async fn release(mut self: Box<Self>) -> Result<()> {
        self.link.say("release\n");
        self.hold = None;
        loop {
            let answer = self.link.answer().await?;
            match wire::fields(&answer)[..] {
                ["done"] => return Ok(()),
                ["error", ref error @ ..] => return Err(wire::read_error(error)),
                _ => {}
            }
        }
    }
}
