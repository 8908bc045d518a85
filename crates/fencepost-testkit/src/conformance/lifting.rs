//! Lifting a lock's tokens: the next one is at least what was asked for, and never less than it would have been.

use fencepost_core::{ErrorKind, FencingToken};

use super::holding::what_is_seen;
use super::stage::Stage;

/// Half an hour of microseconds: the wall clock does not get there while the case runs.
const FAR: u64 = 1_800_000_000;

fn above(token: FencingToken, by: u64) -> FencingToken {
    (token.get() + by).try_into().expect("there are greater tokens")
}

pub(super) async fn lift_raises_the_next_token(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let to = above(lease.token(), FAR);
    lease.release().await.expect("a lease that is held can be released");
    for name in ["orders", "never acquired"] {
        stage.client().lift(name, to).await.expect("a lock can be lifted");
        let lease = stage.take(name).await;
        assert!(lease.token() >= to, "the token of {name:?} is {}, lifted to {to}", lease.token());
        lease.release().await.expect("a lease that is held can be released");
        let lease = stage.take(name).await;
        assert!(lease.token() > to, "the lift of {name:?} held for one grant only");
        lease.release().await.expect("a lease that is held can be released");
    }
}

pub(super) async fn lower_lift_changes_nothing(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let to = above(lease.token(), FAR);
    lease.release().await.expect("a lease that is held can be released");
    stage.client().lift("orders", to).await.expect("a lock can be lifted");
    stage.client().lift("orders", above(FencingToken::MIN, FAR)).await.expect("a lower lift is no error");
    let first = stage.take("orders").await;
    assert!(first.token() >= to, "a lower lift lowered the next token to {}", first.token());
    let token = first.token();
    first.release().await.expect("a lease that is held can be released");
    stage.client().lift("orders", FencingToken::MIN).await.expect("a lower lift is no error");
    let second = stage.take("orders").await;
    assert!(second.token() > token, "a lower lift lowered the next token to {}", second.token());
    second.release().await.expect("a lease that is held can be released");
}

pub(super) async fn lift_of_a_held_lock_leaves_its_holder_alone(stage: &Stage<'_>) {
    let lease = stage.take("orders").await;
    let (token, to) = (lease.token(), above(lease.token(), FAR));
    let before = what_is_seen(&stage.state("orders").await);
    stage.client().lift("orders", to).await.expect("a held lock can be lifted");
    assert_eq!(what_is_seen(&stage.state("orders").await), before, "the lift changed the present lease");
    lease.check().expect("the holder was not disturbed");
    assert_eq!(lease.token(), token);
    assert!(
        stage.other("orders").try_acquire().await.expect("it can be asked for").is_none(),
        "it was freed"
    );
    lease.release().await.expect("the holder was not disturbed");
    let next = stage.take("orders").await;
    assert!(next.token() >= to, "the next token is {}, lifted to {to}", next.token());
    next.release().await.expect("a lease that is held can be released");
}

/// Where a store counts in floating point, numbers above 2^53 have no neighbours.
pub(super) async fn lift_above_two_to_the_fifty_third_is_exact_or_refused(stage: &Stage<'_>) {
    let to = FencingToken::try_from((1 << 53) + 1).expect("it is a token");
    match stage.client().lift("orders", to).await {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Unsupported) => return,
        Err(error) => panic!("the lift failed in another way: {error:?}"),
    }
    let mut last = None;
    for _ in 0..3 {
        let lease = stage.take("orders").await;
        assert!(lease.token() >= to && Some(lease.token()) > last, "{} came after {last:?}", lease.token());
        assert_eq!(stage.state("orders").await.token, Some(lease.token()), "another token is seen");
        last = Some(lease.token());
        lease.release().await.expect("a lease that is held can be released");
    }
}
