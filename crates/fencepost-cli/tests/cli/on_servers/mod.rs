//! What `run` does alike on real servers: when all goes well, when processes are killed or stopped, and when the network fails.
//!
//! Each case says on which servers it runs. Where a server promises something else, its own folder has the case.

/// A test of each case for each of these servers.
macro_rules! on_servers {
    ([$($kind:ident),+] $cases:tt) => { $(on_servers!(@ $kind $cases);)+ };
    (@ redis $cases:tt) => { on_servers!(@ redis, redis_server, RedisServer, $cases); };
    (@ postgres $cases:tt) => { on_servers!(@ postgres, postgres_server, PostgresServer, $cases); };
    (@ etcd $cases:tt) => { on_servers!(@ etcd, etcd_server, EtcdServer, $cases); };
    (@ zookeeper $cases:tt) => { on_servers!(@ zookeeper, zookeeper_server, ZooKeeperServer, $cases); };
    (@ $kind:ident, $installed:ident, $server:ident, { $($case:ident),+ $(,)? }) => {
        mod $kind {
            use fencepost_testkit::servers::$server;
            $(
                #[test]
                #[cfg_attr(not($installed), ignore = "its server is not installed")]
                fn $case() { super::$case::<$server>(); }
            )+
        }
    };
}

mod killed;
mod locks;
mod network;
mod stopped;
mod storm;
mod waiting;
