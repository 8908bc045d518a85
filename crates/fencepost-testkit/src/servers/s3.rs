//! A server that speaks as much of S3 as a fence needs: getting, putting under a condition, and listing.
//!
//! It is of this crate, since none that can be installed everywhere puts under a condition in one atomic step, or can be told
//! to ignore the condition. Invariant: what is answered was done under one lock of the whole bucket, so nothing comes between a
//! condition and its put.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which condition of a put is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// `If-Match`.
    IfMatch,
    /// `If-None-Match`.
    IfNoneMatch,
}

/// What becomes of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is done, and the connection is closed without an answer.
    DoneUnanswered,
    /// It is not done, and answered with this status.
    Refused(u16),
}

/// A running server with one bucket, `bucket`. Its thread lasts as long as the process.
#[derive(Clone, Debug)]
pub struct S3Server {
    address: SocketAddr,
    bucket: Arc<Mutex<Bucket>>,
}

#[derive(Debug, Default)]
struct Bucket {
    objects: BTreeMap<String, Object>,
    ignored: Option<Ignored>,
    fates: Vec<Fate>,
    methods: BTreeSet<String>,
    /// Every object that there was, in the order of the puts.
    history: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug)]
struct Object {
    body: Vec<u8>,
    metadata: Vec<(String, String)>,
}

impl Object {
    /// As in S3, it is that of the content, whatever the metadata say.
    fn etag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.body);
        format!("\"{:032x}\"", hasher.finish())
    }
}

impl S3Server {
    /// A server on a port that the kernel chose.
    ///
    /// # Panics
    /// When the system has no port left.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the kernel has a port left");
        let address = listener.local_addr().expect("it is bound");
        let server = Self { address, bucket: Arc::default() };
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let bucket = Arc::clone(&serving.bucket);
                std::thread::spawn(move || serve(&stream, &bucket));
            }
        });
        server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ignores a condition from now on.
    pub fn ignore(&self, condition: Ignored) {
        self.lock().ignored = Some(condition);
    }

    /// What becomes of the next puts, one after the other.
    pub fn doom(&self, fates: &[Fate]) {
        self.lock().fates = fates.iter().rev().copied().collect();
    }

    /// The methods of all requests until now.
    pub fn methods(&self) -> BTreeSet<String> {
        self.lock().methods.clone()
    }

    /// The keys that there are.
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// The content of an object.
    pub fn content(&self, key: &str) -> Option<Vec<u8>> {
        self.lock().objects.get(key).map(|object| object.body.clone())
    }

    /// Every content that an object has had, in their order.
    pub fn history(&self, key: &str) -> Vec<Vec<u8>> {
        let bucket = self.lock();
        let contents = bucket.history.iter().filter(|(put, _)| put == key);
        contents.map(|(_, body)| body.clone()).collect()
    }

    /// Puts past HTTP, with these headers; gives the status.
    pub fn put(&self, key: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.lock().put(key, headers, body.to_vec()).status
    }

    /// The ETag and the metadata of an object.
    pub fn head(&self, key: &str) -> Option<(String, Vec<(String, String)>)> {
        self.lock().objects.get(key).map(|object| (object.etag(), object.metadata.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Bucket> {
        locked(&self.bucket)
    }
}

fn locked(bucket: &Mutex<Bucket>) -> MutexGuard<'_, Bucket> {
    bucket.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    fn of(status: u16) -> Self {
        let body = format!("<Error><Code>Status{status}</Code></Error>").into_bytes();
        Self { status, headers: Vec::new(), body }
    }
}

impl Bucket {
    /// Answers; nothing where the answer is to be lost.
    fn answer(&mut self, request: Request) -> Option<Response> {
        self.methods.insert(request.method.clone());
        match (request.method.as_str(), request.key.is_empty()) {
            ("GET", true) => Some(self.list(&request.query)),
            ("GET" | "HEAD", false) => Some(self.get(&request.key)),
            ("PUT", false) => match self.fates.pop() {
                Some(Fate::Refused(status)) => Some(Response::of(status)),
                fate => {
                    let response = self.put(&request.key, request.headers, request.body);
                    fate.is_none().then_some(response)
                }
            },
            _ => Some(Response::of(501)),
        }
    }

    fn put(&mut self, key: &str, headers: BTreeMap<String, String>, body: Vec<u8>) -> Response {
        let present = self.objects.get(key).map(Object::etag);
        let matching = headers.get("if-match").filter(|_| self.ignored != Some(Ignored::IfMatch));
        let none = headers.get("if-none-match").filter(|_| self.ignored != Some(Ignored::IfNoneMatch));
        if matching.is_some() && present.is_none() {
            return Response::of(404);
        }
        if matching.is_some_and(|etag| Some(etag) != present.as_ref())
            || (none.is_some() && present.is_some())
        {
            return Response::of(412);
        }
        let metadata = headers.into_iter().filter(|(name, _)| name.starts_with("x-amz-meta-")).collect();
        let object = Object { body, metadata };
        let etag = object.etag();
        self.history.push((key.to_owned(), object.body.clone()));
        self.objects.insert(key.to_owned(), object);
        Response { status: 200, headers: vec![("ETag".to_owned(), etag)], body: Vec::new() }
    }

    fn get(&self, key: &str) -> Response {
        let Some(object) = self.objects.get(key) else { return Response::of(404) };
        let mut headers = object.metadata.clone();
        headers.push(("ETag".to_owned(), object.etag()));
        headers.push(("Last-Modified".to_owned(), "Thu, 01 Jan 1970 00:00:00 GMT".to_owned()));
        Response { status: 200, headers, body: object.body.clone() }
    }

    /// The objects of one folder, in one page.
    fn list(&self, query: &BTreeMap<String, String>) -> Response {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        let below =
            self.objects.iter().filter_map(|(key, object)| Some((key, object, key.strip_prefix(prefix)?)));
        for (key, object, _) in below.filter(|(_, _, rest)| !rest.contains('/')) {
            let (size, etag) = (object.body.len(), object.etag().replace('"', "&quot;"));
            text.extend([
                format!("<Contents><Key>{key}</Key><LastModified>1970-01-01T00:00:00.000Z</LastModified>"),
                format!("<ETag>{etag}</ETag><Size>{size}</Size></Contents>"),
            ]);
        }
        Response { status: 200, headers: Vec::new(), body: (text + "</ListBucketResult>").into_bytes() }
    }
}

/// Serves one connection to its end.
fn serve(stream: &TcpStream, bucket: &Mutex<Bucket>) {
    // Without it, the second write of an answer waits for the client's acknowledgement of the first.
    drop(stream.set_nodelay(true));
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = read(&mut reader) {
        let is_head = request.method == "HEAD";
        let Some(response) = locked(bucket).answer(request) else { return };
        if write(stream, &response, is_head).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = path.strip_prefix("/bucket").unwrap_or_default().trim_start_matches('/');
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect();
    Ok(Some(Request { method: method.to_owned(), key: decoded(key), query, headers, body }))
}

fn write(mut stream: &TcpStream, response: &Response, is_head: bool) -> io::Result<()> {
    let mut text =
        format!("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", response.status, response.body.len());
    for (name, value) in &response.headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    let mut bytes = (text + "\r\n").into_bytes();
    if !is_head {
        bytes.extend(&response.body);
    }
    stream.write_all(&bytes)
}

/// The text without its percent-encoding.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%');
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
