//! A port of this host that stays a server's own while the server is down.
//!
//! A socket that is bound and does not listen keeps the kernel from giving the port to anybody who asks for some port,
//! as the source of a connection too. It lets a server bind the port, since both say `SO_REUSEADDR`. While no server
//! listens, a connection is refused.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// A reserved port of 127.0.0.1.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reservation: OwnedFd,
}

impl Port {
    /// Some port that nobody has.
    pub(crate) fn reserve() -> Self {
        Self::try_reserve().expect("the kernel has a port left")
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        address(self.number)
    }

    fn try_reserve() -> rustix::io::Result<Self> {
        let reservation = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&reservation, true)?;
        bind(&reservation, &address(0))?;
        let bound = SocketAddrV4::try_from(getsockname(&reservation)?)?;
        Ok(Self { number: bound.port(), _reservation: reservation })
    }
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reserved_port_refuses_connections_and_can_be_listened_on() {
        let port = Port::reserve();
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            let listener = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            drop(listener.accept().unwrap());
        }
    }

    #[test]
    fn reserved_port_is_given_to_nobody_else() {
        let port = Port::reserve();
        let others: Vec<Port> = (0..500).map(|_| Port::reserve()).collect();
        assert!(others.iter().all(|other| other.number() != port.number()));
        let listeners = (0..300).map(|_| TcpListener::bind(address(0)).unwrap());
        let listeners: Vec<TcpListener> = listeners.collect();
        assert!(listeners.iter().all(|other| other.local_addr().unwrap() != port.address()));
    }
}
