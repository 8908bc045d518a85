//! The scripts: each is one atomic step on the server, sent by its hash and in full only where the server lacks it.
//!
//! They lie in `lua/`, each with its keys, its arguments, its result, and why it is atomic.

use std::fmt::Write;
use std::sync::LazyLock;

use sha1::{Digest, Sha1};

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) text: &'static str,
    hash: LazyLock<String>,
}

impl Script {
    const fn new(text: &'static str, hash: fn() -> String) -> Self {
        Self { text, hash: LazyLock::new(hash) }
    }

    /// What the server knows it by.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}

/// What the server knows a script with this text by.
pub(crate) fn hash_of(text: &str) -> String {
    Sha1::digest(text).iter().fold(String::new(), |mut hash, byte| {
        write!(hash, "{byte:02x}").expect("a string takes any text");
        hash
    })
}

macro_rules! scripts {
    ($($name:ident: $($file:literal)+;)*) => {
        $(pub(crate) static $name: Script = {
            const TEXT: &str = concat!($(include_str!(concat!("../lua/", $file, ".lua")), "\n"),+);
            Script::new(TEXT, || hash_of(TEXT))
        };)*
    };
}

scripts! {
    ACQUIRE: "keys" "record" "take" "claim_alone" "readers" "hand_over" "enter" "acquire";
    RELEASE: "keys" "release_alone" "claim_alone" "readers" "hand_over" "release";
    CANCEL: "keys" "claim_alone" "readers" "hand_over" "cancel";
    RENEW: "keys" "readers" "renew";
    BEAT: "keys" "claim_alone" "readers" "hand_over" "beat";
    WRITE_LOGBOOK: "keys" "write_logbook";
    INSPECT: "keys" "readers" "inspect";
    REVOKE: "keys" "keep_token" "claim_alone" "readers" "hand_over" "revoke";
    LIFT: "keys" "lift";
    LEARN: "learn";
    NODE_LOCK: "keys" "record" "counter" "node_write_token" "node_take" "claim_among_others" "readers" "hand_over" "enter" "node_lock";
    NODE_PROPOSE: "keys" "counter" "node_write_token" "node_propose";
    NODE_WITHDRAW: "keys" "node_withdraw";
    NODE_LEAVE_QUEUE: "keys" "node_leave_queue";
    NODE_RELEASE: "keys" "node_release_record" "claim_among_others" "readers" "hand_over" "release";
    NODE_CANCEL: "keys" "claim_among_others" "readers" "hand_over" "cancel";
    NODE_BEAT: "keys" "claim_among_others" "readers" "hand_over" "beat";
    NODE_REVOKE: "keys" "node_keep_token" "claim_among_others" "readers" "hand_over" "revoke";
    NODE_LIFT: "keys" "counter" "node_lift";
    NODE_READ: "counter" "node_read";
    NODE_SEED: "counter" "node_seed";
    FENCE_SEAL: "fence" "fence_seal";
    EXAMINE: "examine";
}

/// What is sent before a script of the user.
pub(crate) const CHECK: &str = concat!(include_str!("../lua/fence.lua"), include_str!("../lua/fenced.lua"));

/// The fence as a library of functions.
pub(crate) const FUNCTIONS: &str = concat!(
    "#!lua name=fencepost\n",
    include_str!("../lua/fence.lua"),
    include_str!("../lua/fence_functions.lua")
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_known_by_the_hash_of_its_text() {
        assert_eq!(hash_of("return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
