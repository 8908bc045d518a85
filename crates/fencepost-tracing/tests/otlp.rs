//! Spans on their way to a collector: what arrives, and what becomes of a collector that is not there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use fencepost_core::{ErrorKind, Locks, MemoryBackend, VirtualTime};
use fencepost_tracing::{Spans, otlp};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

/// A collector that takes one request.
fn collector() -> (SocketAddr, JoinHandle<(String, ExportTraceServiceRequest)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a port");
    let address = listener.local_addr().expect("it is bound");
    let taking = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody connects");
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a head is text");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length is a number");
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body is as long as it says");
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        reader.into_inner().write_all(answer.as_bytes()).expect("it waits for the answer");
        (head, ExportTraceServiceRequest::decode(&*body).expect("it is a request of OTLP"))
    });
    (address, taking)
}

/// One lease that is lost, and something that is none of ours.
fn work(export: &otlp::Export) -> u64 {
    let time = VirtualTime::new(1);
    let locks = Locks::new(MemoryBackend::new(time.clock()));
    let lock = locks.lock("orders").expect("it is a name").observer(Arc::new(Spans));
    tracing::subscriber::with_default(Registry::default().with(export.layer()), || {
        let _other = tracing::info_span!("none of ours").entered();
        time.block_on(async {
            let lease = lock.acquire().await.expect("it is free");
            let token = lease.token();
            locks.revoke("orders", token, "a test").await.expect("it is held");
            lease.lost().await;
            lease.release().await.expect_err("it was revoked");
            token.get()
        })
    })
}

fn value(span: &Span, key: &str) -> Option<Value> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.clone()
}

#[test]
fn spans_arrive_at_a_collector_with_what_they_tell() {
    let (address, taking) = collector();
    let export = otlp::export(&format!("http://{address}/"), "ledger").unwrap();
    let token = work(&export);
    export.finish().unwrap();
    let (head, request) = taking.join().unwrap();
    assert!(head.starts_with("POST /v1/traces "), "{head}");

    let [of_service] = &request.resource_spans[..] else { panic!("{request:?}") };
    let attributes = &of_service.resource.as_ref().unwrap().attributes;
    let service = attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
    let service = service.value.as_ref().unwrap().value.clone();
    assert_eq!(service, Some(Value::StringValue("ledger".to_owned())));

    let spans: Vec<&Span> = of_service.scope_spans.iter().flat_map(|scope| &scope.spans).collect();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["acquire", "lease"]);
    for span in &spans {
        assert_eq!(value(span, "lock"), Some(Value::StringValue("orders".to_owned())));
        assert_eq!(value(span, "backend"), Some(Value::StringValue("memory".to_owned())));
        assert_eq!(value(span, "token"), Some(Value::IntValue(i64::try_from(token).unwrap())));
    }
    let lease = spans[1];
    assert_eq!(value(lease, "outcome"), Some(Value::StringValue("lost".to_owned())));
    assert_eq!(lease.status.as_ref().map(|status| status.code), Some(2), "an error");
    let events: Vec<_> = lease.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["the lease is lost"]);
}

#[test]
fn collector_that_is_not_there_delays_no_lock_and_is_said_at_the_end() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let export = otlp::export(&format!("http://{address}"), "ledger").unwrap();
    work(&export);
    assert_eq!(export.finish().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(otlp::export("no URL", "ledger").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn install_refuses_a_program_that_has_a_subscriber_already() {
    let export = otlp::install("http://127.0.0.1:9", "ledger").unwrap();
    assert_eq!(otlp::install("http://127.0.0.1:9", "ledger").unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(export);
}
