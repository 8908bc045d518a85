//! One HTTP/2 connection to one member, over a socket that fencepost's own thread watches.
//!
//! Whoever waits does the work (decision 15): no thread of its own and no runtime stands between a call and its answer.
//! Invariant: a connection that was closed ends every call on it, so that nobody waits for a member that was given up.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{Clock, Moment, Raced, Result, lock, race};
use fencepost_net::{Address, KeepAlive, Stream, Transport};
use futures_channel::oneshot;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE};
use http::uri::{Authority, Scheme, Uri};
use http::{HeaderName, HeaderValue, Request};
use prost::Message;

use crate::failure::{Failure, unavailable};
use crate::grpc::{Frames, framed, refusal, tells_the_end};

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    clock: Clock,
    address: Address,
    scheme: Scheme,
    authority: Authority,
    requests: SendRequest<Bytes>,
    has_ended: AtomicBool,
    /// Whether it was ended here, since a call had no answer in time.
    was_given_up: AtomicBool,
    /// When something has come from the other side for the last time; 0 before it has.
    heard_at: AtomicU64,
    /// How it has ended, where that is known.
    why: OnceLock<String>,
    /// Closes the connection when it is dropped.
    open: Mutex<Option<oneshot::Sender<()>>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.0.address)
    }
}

impl Connection {
    /// Connects to a member; `most` is for finding and reaching the host.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(crate) async fn open(
        clock: &Clock,
        address: &Address,
        transport: &Transport,
        most: Duration,
    ) -> Result<Self> {
        let (stream, _) = Stream::open(clock, address, transport, &KEEP_ALIVE, most).await?;
        let shaken = Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            // What was given up is answered all the same, and a member that is busy is no attacker.
            .max_local_error_reset_streams(None)
            .handshake::<_, Bytes>(stream)
            .await;
        let broken = |error: h2::Error| unavailable(address.to_string()).caused_by(error);
        let (requests, connection) = shaken.map_err(broken)?;
        let scheme = if matches!(transport, Transport::Plain) { Scheme::HTTP } else { Scheme::HTTPS };
        let authority = Authority::try_from(address.to_string());
        let authority =
            authority.map_err(|_| unavailable(format!("{address} is no host that HTTP knows")))?;
        let (open, closed) = oneshot::channel::<()>();
        let shared = Shared {
            clock: clock.clone(),
            address: address.clone(),
            scheme,
            authority,
            requests,
            has_ended: AtomicBool::new(false),
            was_given_up: AtomicBool::new(false),
            heard_at: AtomicU64::new(0),
            why: OnceLock::new(),
            open: Mutex::new(Some(open)),
        };
        let opened = Self(Arc::new(shared));
        let ended = Arc::downgrade(&opened.0);
        clock.serve(async move {
            let outcome = race(connection, closed).await;
            if let Some(shared) = ended.upgrade() {
                if let Raced::First(Err(error)) = outcome {
                    // The calls are only told that it is broken. Nobody has said so before.
                    let _ = shared.why.set(error.to_string());
                }
                shared.has_ended.store(true, Ordering::Release);
            }
        });
        Ok(opened)
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.0.has_ended.load(Ordering::Acquire)
    }

    /// Where it goes.
    pub(crate) fn address(&self) -> &Address {
        &self.0.address
    }

    /// Uses it no more, whatever is under way.
    pub(crate) fn close(&self) {
        self.0.was_given_up.store(true, Ordering::Release);
        self.0.has_ended.store(true, Ordering::Release);
        lock(&self.0.open).take();
    }

    /// Whether it was ended here, and not by the other side.
    pub(crate) fn was_given_up(&self) -> bool {
        self.0.was_given_up.load(Ordering::Acquire)
    }

    /// Whether anything has come from the other side since, on whichever call: a member that stands still says nothing at all.
    pub(crate) fn has_answered_since(&self, moment: Moment) -> bool {
        self.0.heard_at.load(Ordering::Relaxed) > moment.as_nanos()
    }

    fn note_answer(&self) {
        self.0.heard_at.store(self.0.clock.now().as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sends messages, framed, and gives as many answers.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have been carried out.
    pub(crate) async fn ask<A: Message + Default>(
        &self,
        method: &'static str,
        (frames, count): (Bytes, usize),
        token: Option<&str>,
    ) -> Result<Vec<A>, Failure> {
        let (response, mut request) = self.send(method, token).await?;
        request.send_data(frames, true).map_err(|error| self.broken(&error))?;
        let mut answers = Answers::new(self.clone(), response, None);
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let answer = answers.next().await?;
            all.push(answer.ok_or_else(|| Failure::Broken(format!("{} gave no answer", self.0.address)))?);
        }
        // The end tells whether it was carried out.
        answers.end().await?;
        Ok(all)
    }

    /// Begins a call in which messages go both ways.
    ///
    /// # Cancel safety
    /// Dropping it ends the call.
    pub(crate) async fn begin<A: Message + Default>(
        &self,
        method: &'static str,
        token: Option<&str>,
    ) -> Result<Answers<A>, Failure> {
        let (response, request) = self.send(method, token).await?;
        Ok(Answers::new(self.clone(), response, Some(request)))
    }

    async fn send(
        &self,
        method: &'static str,
        token: Option<&str>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Failure> {
        if !self.is_open() {
            return Err(Failure::Unsent(self.says(&"the connection has ended")));
        }
        let unsent = |error: h2::Error| Failure::Unsent(self.says(&error));
        let mut requests = self.0.requests.clone().ready().await.map_err(unsent)?;
        requests.send_request(self.request(method, token), false).map_err(unsent)
    }

    fn request(&self, method: &'static str, token: Option<&str>) -> Request<()> {
        let uri = Uri::builder()
            .scheme(self.0.scheme.clone())
            .authority(self.0.authority.clone())
            .path_and_query(method)
            .build()
            .expect("a method is a path");
        let mut request = Request::post(uri).body(()).expect("a URI and nothing else");
        let fields = request.headers_mut();
        fields.insert(TE, HeaderValue::from_static("trailers"));
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        if !method.starts_with(OF_ONE_MEMBER) {
            fields.insert(HAS_LEADER, HeaderValue::from_static("true"));
        }
        if let Some(token) = token.and_then(|token| HeaderValue::try_from(token).ok()) {
            fields.insert(TOKEN, token);
        }
        request
    }

    fn broken(&self, error: &h2::Error) -> Failure {
        Failure::Broken(self.says(error))
    }

    /// How the connection has ended, or else what is known of it.
    fn says(&self, error: &dyn fmt::Display) -> String {
        let Shared { address, why, scheme, heard_at, .. } = &*self.0;
        let why = why.get().map_or_else(|| error.to_string(), Clone::clone);
        // It closes before its reason can be read.
        if *scheme == Scheme::HTTPS && heard_at.load(Ordering::Relaxed) == 0 {
            return format!(
                "{address}: {why}; where it asks its clients for a certificate, add cert=FILE&key=FILE"
            );
        }
        format!("{address}: {why}")
    }
}

/// The answers to one call, in their order.
pub(crate) struct Answers<A> {
    connection: Connection,
    state: State,
    request: Option<SendStream<Bytes>>,
    frames: Frames,
    of: PhantomData<fn() -> A>,
}

enum State {
    /// The head has not come.
    Waiting(ResponseFuture),
    Body(RecvStream),
    Ended,
}

impl<A: Message + Default> Answers<A> {
    fn new(connection: Connection, response: ResponseFuture, request: Option<SendStream<Bytes>>) -> Self {
        let (frames, of) = Default::default();
        Self { connection, state: State::Waiting(response), request, frames, of }
    }

    /// Sends a further message.
    pub(crate) fn tell(&mut self, message: &impl Message) -> Result<(), Failure> {
        let Some(request) = &mut self.request else { return Ok(()) };
        request.send_data(framed(message), false).map_err(|error| self.connection.broken(&error))
    }

    /// The next answer; `None` at the end of all.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    ///
    /// # Errors
    /// How the server refuses, or the connection has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<A>, Failure> {
        loop {
            let next = self.frames.next();
            if let Some(message) = next.map_err(|what| self.wrong(&what))? {
                return Ok(Some(message));
            }
            match &mut self.state {
                State::Waiting(response) => {
                    let (head, body) =
                        response.await.map_err(|error| self.connection.broken(&error))?.into_parts();
                    self.connection.note_answer();
                    if let Some(refused) = refusal(&head.headers) {
                        return Err(self.refused(refused));
                    }
                    if !head.status.is_success() {
                        return Err(self.wrong(&format!("it answers with the status {}", head.status)));
                    }
                    self.state = State::Body(body);
                }
                State::Body(body) => match body.data().await {
                    Some(data) => {
                        let data = data.map_err(|error| self.connection.broken(&error))?;
                        self.connection.note_answer();
                        let _ = body.flow_control().release_capacity(data.len());
                        self.frames.add(&data);
                    }
                    None => return self.end().await.map(|()| None),
                },
                State::Ended => return Ok(None),
            }
        }
    }

    /// Waits for the end.
    async fn end(&mut self) -> Result<(), Failure> {
        let State::Body(body) = &mut self.state else { return Ok(()) };
        while let Some(data) = body.data().await {
            let data = data.map_err(|error| self.connection.broken(&error))?;
            let _ = body.flow_control().release_capacity(data.len());
        }
        let trailers = poll_fn(|context| body.poll_trailers(context)).await;
        let trailers = trailers.map_err(|error| self.connection.broken(&error))?;
        self.state = State::Ended;
        let Some(trailers) = trailers.filter(tells_the_end) else {
            return Err(self.wrong("an answer has no end that tells of success or failure"));
        };
        match refusal(&trailers) {
            Some(refused) => Err(self.refused(refused)),
            None => Ok(()),
        }
    }

    fn refused(&self, refusal: crate::grpc::Refusal) -> Failure {
        Failure::Refused { at: self.connection.address().to_string(), refusal }
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::Broken(format!("{} is no etcd: {what}", self.connection.address()))
    }
}

/// How much may be on its way to us unread: a page of a list.
const WINDOW: u32 = 4 << 20;

/// The kernel's own care for the socket; a member that is silent is noticed by the deadline of each call long before.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    after: Duration::from_secs(10),
    each: Duration::from_secs(3),
    times: 3,
    unacknowledged: Some(Duration::from_secs(20)),
};

/// A member that knows no leader is to say so at once, and not after five seconds.
const HAS_LEADER: HeaderName = HeaderName::from_static("hasleader");

/// What a member tells of itself, also without a leader.
const OF_ONE_MEMBER: &str = "/etcdserverpb.Maintenance/Status";

/// etcd's own name for the token of a login.
const TOKEN: HeaderName = HeaderName::from_static("token");
