//! A member that is not quite itself: it stands between a client and a real one, and changes what that answers.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// An answer on its way to the client.
pub(crate) struct Passing<'a> {
    /// To which operation; `None` for the welcome.
    pub(crate) operation: Option<i32>,
    /// The frame, without its length.
    pub(crate) frame: &'a mut Vec<u8>,
}

impl Passing<'_> {
    /// Makes it the refusal of a request, without any body.
    pub(crate) fn refuse(&mut self, code: i32) {
        self.frame.truncate(16);
        self.frame[12..16].copy_from_slice(&code.to_be_bytes());
    }
}

type Change = dyn Fn(Passing<'_>) -> bool + Send + Sync;

/// A running one.
pub(crate) struct Between {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Between {
    /// Stands before the member at `real`; the connection is closed behind an answer for which `change` says no.
    pub(crate) fn start(
        real: SocketAddr,
        change: impl Fn(Passing<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (address, is_over) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (change, over): (Arc<Change>, _) = (Arc::new(change), Arc::clone(&is_over));
        let accepting = std::thread::spawn(move || {
            for client in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let (client, server) = (client.unwrap(), TcpStream::connect(real).unwrap());
                pass(client, server, Arc::clone(&change));
            }
        });
        Self { address, is_over, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("zookeeper://{}", self.address)
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        drop(TcpStream::connect(self.address));
        drop(self.accepting.take().map(JoinHandle::join));
    }
}

/// The threads end with the connection.
fn pass(client: TcpStream, server: TcpStream, change: Arc<Change>) {
    let operations: Arc<Mutex<HashMap<i32, i32>>> = Arc::default();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let asked = Arc::clone(&operations);
    std::thread::spawn(move || {
        let mut is_hello = true;
        while let Ok(frame) = receive(&mut from) {
            if !std::mem::take(&mut is_hello) {
                asked.lock().unwrap().insert(int(&frame[..4]), int(&frame[4..8]));
            }
            if send(&mut to, &frame).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Both));
    });
    let (mut from, mut to) = (server, client);
    std::thread::spawn(move || {
        let mut is_welcome = true;
        while let Ok(mut frame) = receive(&mut from) {
            let of = |frame: &[u8]| operations.lock().unwrap().get(&int(&frame[..4])).copied();
            let operation =
                if std::mem::take(&mut is_welcome) { None } else { Some(of(&frame).unwrap_or(0)) };
            let goes_on = change(Passing { operation, frame: &mut frame });
            if send(&mut to, &frame).is_err() || !goes_on {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Both));
        drop(from.shutdown(Shutdown::Both));
    });
}

fn int(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().unwrap())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; usize::try_from(int(&length)).unwrap()];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn send(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    let length = i32::try_from(frame.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes()[..], frame].concat())
}
