//! The sentinels of a server: how many there are, whether they agree, and whether they could fail over.

use std::time::Duration;

use fencepost_core::{Clock, Finding, Result, until};
use fencepost_net::Address;
use futures_util::future::join_all;

use super::facts::{ask, connect};
use crate::failure::{refuse, unavailable};
use crate::resp::Reply;

/// How long one sentinel may take.
const SENTINEL_MOST: Duration = Duration::from_millis(1_500);

/// What one sentinel says of the server that it watches.
struct Told {
    primary: Address,
    others: i64,
    /// Why they could not fail over, where they could not.
    no_quorum: Option<String>,
}

/// Asks all sentinels that the URL names: where the primary is, and what is odd.
///
/// # Errors
/// `Unavailable` when none of them knows it.
pub(super) async fn examine(
    clock: &Clock,
    sentinels: &[Address],
    name: &str,
    is_tls: bool,
) -> Result<(Address, Vec<Finding>)> {
    let one = |sentinel: &Address| {
        let sentinel = sentinel.clone();
        async move {
            let give_up_at = Some(clock.now().after(SENTINEL_MOST));
            let told = until(clock, give_up_at, Box::pin(Told::by(clock, &sentinel, name, is_tls))).await;
            told.unwrap_or_else(|| Err(unavailable(format!("it has not answered for {SENTINEL_MOST:?}"))))
        }
    };
    let all = join_all(sentinels.iter().map(one)).await;
    let (mut known, mut findings) = (Vec::new(), Vec::new());
    for (sentinel, told) in sentinels.iter().zip(all) {
        match told {
            Ok(told) => known.push((sentinel, told)),
            Err(error) => findings.push(Finding::failed(
                format_args!("the sentinel {sentinel}"),
                &error,
                "one sentinel less decides about a failover, and can be asked where the primary is",
            )),
        }
    }
    let Some((_, first)) = known.first() else {
        let why = findings.first().map(|finding| finding.evidence.clone()).unwrap_or_default();
        return Err(unavailable(format!("no sentinel says where {name:?} is: {why}")));
    };
    findings.extend([few(name, first), quorum(name, first), disagreement(&known)].into_iter().flatten());
    Ok((first.primary.clone(), findings))
}

impl Told {
    async fn by(clock: &Clock, sentinel: &Address, name: &str, is_tls: bool) -> Result<Self> {
        let connection = connect(clock, sentinel, is_tls).await?;
        let watched = refuse(ask(&connection, &["SENTINEL", "MASTER", name]).await?)?;
        let text = |field| watched.value(field).and_then(Reply::text).unwrap_or_default();
        let port = text("port").parse().map_err(|_| unavailable("it does not say where the server is"))?;
        let primary = Address { host: text("ip").to_owned(), port };
        let others = text("num-other-sentinels").parse().unwrap_or_default();
        let no_quorum = match ask(&connection, &["SENTINEL", "CKQUORUM", name]).await? {
            Reply::Refused(what) if what.starts_with("NOQUORUM") => Some(what),
            _ => None,
        };
        Ok(Self { primary, others, no_quorum })
    }
}

fn few(name: &str, told: &Told) -> Option<Finding> {
    let count = told.others + 1;
    (count < 3).then(|| {
        let evidence = format!("{count} of them watch {name}");
        Finding::warning("the sentinels", evidence)
            .means("when one host is gone no majority of them may be left, and nobody takes over; or one alone decides, wrongly where it is cut off itself")
            .remedy("run three sentinels or more, on hosts of their own")
    })
}

fn quorum(name: &str, told: &Told) -> Option<Finding> {
    let why = told.no_quorum.as_ref()?;
    Some(
        Finding::warning("the sentinels", format!("SENTINEL CKQUORUM {name} says: {why}"))
            .means("when the primary is gone nobody takes over, and no lock can be acquired until it is back")
            .remedy(format!("bring the missing sentinels back, or SENTINEL SET {name} quorum to fewer")),
    )
}

fn disagreement(known: &[(&Address, Told)]) -> Option<Finding> {
    let (first, rest) = known.split_first()?;
    let other = rest.iter().find(|(_, told)| told.primary != first.1.primary)?;
    let evidence = format!(
        "{} says that the primary is {}, and {} says {}",
        first.0, first.1.primary, other.0, other.1.primary
    );
    Some(
        Finding::serious("the sentinels", evidence)
            .means("clients may go to different servers, and two may hold a lock")
            .remedy("see whether a failover is under way; if it stays so, SENTINEL RESET on the one that is wrong"),
    )
}
