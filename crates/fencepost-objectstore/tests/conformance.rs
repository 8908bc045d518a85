//! The suite that every fence runs, over a store in memory and over HTTP: to the server of the testkit, and to moto.

use std::net::SocketAddr;
use std::sync::Arc;

use fencepost_core::Fence;
use fencepost_objectstore::ObjectStoreFence;
use fencepost_objectstore::object_store::memory::InMemory;
use fencepost_testkit::FenceHarness;
use fencepost_testkit::servers::{MotoServer, S3Server};

struct Memory(Arc<InMemory>);

struct S3(S3Server);

struct Moto(MotoServer);

fn fence(address: SocketAddr) -> Arc<dyn Fence> {
    let url = format!("s3://bucket/exports?endpoint=http://{address}&allow_http=on&test_keys=on");
    let url = url.parse().expect("it is a URL");
    Arc::new(ObjectStoreFence::from_url(&url).expect("the URL names a bucket"))
}

impl FenceHarness for Memory {
    fn start() -> Self {
        Self(Arc::default())
    }

    fn fence(&self) -> Arc<dyn Fence> {
        let fence = ObjectStoreFence::over(Arc::clone(&self.0) as _, "exports", "memory");
        Arc::new(fence.expect("it is a prefix"))
    }
}

impl FenceHarness for S3 {
    fn start() -> Self {
        Self(S3Server::start())
    }

    fn fence(&self) -> Arc<dyn Fence> {
        fence(self.0.address())
    }
}

impl FenceHarness for Moto {
    fn start() -> Self {
        Self(MotoServer::start())
    }

    fn fence(&self) -> Arc<dyn Fence> {
        fence(self.0.address())
    }
}

fencepost_testkit::fence_conformance!(memory: Memory);
fencepost_testkit::fence_conformance!(s3: S3);
fencepost_testkit::fence_conformance!(moto: Moto, if moto_server);
