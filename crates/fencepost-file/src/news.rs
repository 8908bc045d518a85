//! What happens in a directory, as the kernel tells it: to the holders of this process, that leases were taken away.
//!
//! One watch a directory serves all of them, and stays for the next ones. Invariant: who listens looks after it has begun to, so
//! that nothing is missed; and looks now and then besides, since the kernel may have no watch to give.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, Waker};

use fencepost_core::{Clock, Error, ErrorKind, Result, Watched, lock};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::directory::failure;

/// The watches of this process.
static NEWS: LazyLock<Mutex<HashMap<PathBuf, Arc<News>>>> = LazyLock::new(Mutex::default);

/// What is watched for: files that were put in the place of others.
const REPLACED: WatchFlags = WatchFlags::MOVED_TO;

/// Those of this process who listen to one directory.
#[derive(Debug, Default)]
struct News(Mutex<Listeners>);

#[derive(Debug, Default)]
struct Listeners {
    next_id: u64,
    wakers: HashMap<u64, Waker>,
}

/// Somebody who listens; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Listening {
    news: Arc<News>,
    id: u64,
}

/// Begins to listen for files that are replaced; `None` where the kernel does not tell of them.
pub(crate) fn listen(directory: &Path, clock: &Clock) -> Option<Listening> {
    let mut all = lock(&NEWS);
    let news = if let Some(news) = all.get(directory) {
        Arc::clone(news)
    } else {
        let watch = watch(directory, clock, REPLACED).ok()?;
        let news = Arc::<News>::default();
        all.insert(directory.to_owned(), Arc::clone(&news));
        clock.serve(serve(watch, directory.to_owned(), Arc::clone(&news)));
        news
    };
    Some(Listening::to(news))
}

/// The same where this process has a watch already.
pub(crate) fn join(directory: &Path) -> Option<Listening> {
    lock(&NEWS).get(directory).map(|news| Listening::to(Arc::clone(news)))
}

impl Listening {
    fn to(news: Arc<News>) -> Self {
        let id = {
            let mut listeners = lock(&news.0);
            listeners.next_id += 1;
            listeners.next_id
        };
        Self { news, id }
    }

    /// Has `context` woken by the next news.
    pub(crate) fn wake(&self, context: &Context<'_>) {
        lock(&self.news.0).wakers.insert(self.id, context.waker().clone());
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.news.0).wakers.remove(&self.id);
    }
}

/// Wakes all who listen, until the directory is gone.
async fn serve(watch: Watched<OwnedFd>, directory: PathBuf, news: Arc<News>) {
    loop {
        let seen = poll_fn(|context| poll_seen(&watch, context)).await;
        let has_ended = seen.is_none_or(|seen| seen.intersects(ENDS));
        if has_ended {
            lock(&NEWS).remove(&directory);
        }
        let wakers = std::mem::take(&mut lock(&news.0).wakers);
        wakers.into_values().for_each(Waker::wake);
        if has_ended {
            return;
        }
    }
}

/// With these the kernel tells nothing more.
pub(crate) const ENDS: ReadFlags = ReadFlags::IGNORED.union(ReadFlags::UNMOUNT);

/// Has the kernel tell what happens in a directory.
///
/// # Errors
/// `Unavailable` when it has no watch to give.
pub(crate) fn watch(directory: &Path, clock: &Clock, flags: WatchFlags) -> Result<Watched<OwnedFd>> {
    let what = "watch the directory of the locks";
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).and_then(|watch| {
        inotify::add_watch(&watch, directory, flags | WatchFlags::ONLYDIR)?;
        Ok(watch)
    });
    match watch {
        Ok(watch) => Watched::new(clock, watch),
        // There are few watches for each user, and whoever has none can look again from time to time.
        Err(Errno::MFILE | Errno::NOSPC | Errno::NFILE) => {
            Err(Error::new(ErrorKind::Unavailable, what, "the system has no watch left"))
        }
        Err(error) => Err(failure(what, directory, error.into())),
    }
}

/// All that has happened since the last look; `None` when that can be told no more.
pub(crate) fn poll_seen(watch: &Watched<OwnedFd>, context: &mut Context<'_>) -> Poll<Option<ReadFlags>> {
    let read = watch.poll_read(context, |watch| {
        let mut buffer = [std::mem::MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(watch, &mut buffer);
        let mut seen = ReadFlags::empty();
        loop {
            match reader.next() {
                Ok(event) => seen |= event.events(),
                Err(Errno::AGAIN) if !seen.is_empty() => return Ok(seen),
                Err(error) => return Err(io::Error::from(error)),
            }
        }
    });
    read.map(Result::ok)
}

/// Room for some events with their names.
const BUFFER: usize = 4096;
