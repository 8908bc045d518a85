//! The check in front of a service.
//!
//! Invariant: a request reaches the service behind only after the fence has accepted its stamp for the lock that the
//! service names.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fencepost_core::{ErrorKind, Fence, LockName, Result, Stamp};
use http::request::Parts;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::header::read;
use crate::refusal::Refusal;

/// Lets only those requests pass whose stamp a fence accepts; the others are answered.
///
/// The service says which lock a request needs. A handler finds the accepted [`Stamp`] in the request's extensions.
#[derive(Clone)]
pub struct FencingLayer {
    fence: Arc<dyn Fence>,
    lock: Arc<LockOf>,
}

impl FencingLayer {
    /// For requests that all need the same lock.
    pub fn new(fence: Arc<dyn Fence>, lock: LockName) -> Self {
        Self::lock_from(fence, move |_| Ok(lock.clone()))
    }

    /// For requests of which each says by its path, or otherwise, what it changes: `lock` gives the lock that protects that.
    ///
    /// It must not look at the stamp: a caller could then choose a lock that it holds. A request for which it gives an error is
    /// refused, with 400 where that is [`ErrorKind::InvalidArgument`].
    pub fn lock_from(
        fence: Arc<dyn Fence>,
        lock: impl Fn(&Parts) -> Result<LockName> + Send + Sync + 'static,
    ) -> Self {
        Self { fence, lock: Arc::new(lock) }
    }

    /// The stamp of a request, if the fence accepts it.
    async fn accepted(&self, request: &Parts) -> Result<Stamp, Refusal> {
        let lock = (self.lock)(request).map_err(|error| Refusal::of_the_name(&error))?;
        let stamp = read(&request.headers).map_err(|reason| Refusal::unread(&lock, reason))?;
        if stamp.lock != lock {
            return Err(Refusal::of_another_lock(&lock, &stamp));
        }
        match self.fence.check(&stamp).await {
            Ok(()) => Ok(stamp),
            Err(error) if error.kind() == ErrorKind::Stale => match self.fence.mark(&lock).await {
                Ok(mark) => Err(Refusal::stale(&stamp, mark, error)),
                Err(error) => Err(Refusal::unchecked(&stamp, error)),
            },
            Err(error) => Err(Refusal::unchecked(&stamp, error)),
        }
    }
}

impl fmt::Debug for FencingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencingLayer").field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for FencingLayer {
    type Service = FencingService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FencingService { layer: self.clone(), inner }
    }
}

/// A service with the check of a [`FencingLayer`] in front.
#[derive(Clone, Debug)]
pub struct FencingService<S> {
    layer: FencingLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for FencingService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was ready is called; a clone of it may not be.
        let next = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match layer.accepted(&parts).await {
                Ok(stamp) => {
                    parts.extensions.insert(stamp);
                    ready.call(Request::from_parts(parts, body)).await
                }
                Err(refusal) => Ok(refusal.response()),
            }
        })
    }
}

type LockOf = dyn Fn(&Parts) -> Result<LockName> + Send + Sync;
