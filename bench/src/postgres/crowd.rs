//! Several bare sessions in one thread, each of which takes a lock and gives it back again and again.

use fencepost_testkit::servers::PostgresServer;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;

use super::wire::Session;
use crate::contest::{Contest, Outcome};

/// Sessions that work at once.
pub(crate) struct Crowd {
    epoll: OwnedFd,
    members: Vec<Member>,
}

struct Member {
    session: Session,
    take: Vec<u8>,
    give_back: Vec<u8>,
    has_it: bool,
}

impl Crowd {
    /// Sessions of which each takes a lock by this SQL, all the same one, or each its own.
    pub(crate) fn new(server: &PostgresServer, size: usize, sql: &str, one_lock: bool) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("the system gives a descriptor");
        let members = (0..size).map(|index| {
            let mut session = Session::new(server);
            let id = if one_lock { 0 } else { i32::try_from(index).expect("a small number") };
            let take = session.prepare("take", sql, &[1, id]);
            let give_back = session.prepare("give", "select pg_advisory_unlock($1, $2)", &[1, id]);
            let number = EventData::new_u64(index.try_into().expect("a small number"));
            epoll::add(&epoll, &session, number, EventFlags::IN).expect("a socket can be watched");
            Member { session, take, give_back, has_it: false }
        });
        let members = members.collect();
        Self { epoll, members }
    }

    pub(crate) fn contend(&mut self) -> Outcome {
        let contest = Contest::among(self.members.len());
        for (index, member) in self.members.iter_mut().enumerate() {
            contest.asks(index);
            member.session.send(&member.take);
        }
        let mut at_work = self.members.len();
        let mut events = Vec::with_capacity(at_work);
        while at_work > 0 {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), None).expect("the sessions answer");
            for event in &events {
                let index = usize::try_from(event.data.u64()).expect("the number of a member");
                at_work -= usize::from(self.members[index].is_done(index, &contest));
            }
        }
        contest.end()
    }
}

impl Member {
    /// Goes on by what the server has sent; whether it goes on no more.
    fn is_done(&mut self, index: usize, contest: &Contest) -> bool {
        if !self.session.receive() {
            return false;
        }
        self.has_it = !self.has_it;
        if self.has_it {
            contest.is_granted(index);
            self.session.send(&self.give_back);
            return false;
        }
        if !contest.goes_on() {
            return true;
        }
        contest.asks(index);
        self.session.send(&self.take);
        false
    }
}
