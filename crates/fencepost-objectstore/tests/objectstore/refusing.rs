//! Objects that are not fencepost's are told of, and stay as they are.

use fencepost_core::{ErrorKind, Fence, NamePrefix, block_on};

use crate::support::{OBJECT, ledger, publish, seal, sealed};

#[test]
fn object_of_somebody_else_is_never_written_over() {
    let (server, fence) = sealed();
    let whole = server.content(OBJECT).unwrap();
    let half = &whole[..whole.len() / 2];
    let large = vec![b'x'; 2 << 20];
    for foreign in [&b"a,1\n"[..], b"", half, &large] {
        server.put(OBJECT, &[], foreign);
        let answers = [
            seal(&fence, 9),
            publish(&fence, 7, "a").map(drop),
            block_on(fence.forget(&ledger())).map(drop),
            block_on(fence.mark(&ledger())).map(drop),
            block_on(fence.marks(&NamePrefix::default())).map(drop),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unexpected, "{error:?}");
            assert!(error.to_string().contains(OBJECT), "{error:?}");
        }
        assert_eq!(server.content(OBJECT).unwrap(), foreign);
    }
}

#[test]
fn object_of_another_lock_is_refused() {
    let (server, fence) = sealed();
    let other = server.content(OBJECT).unwrap();
    server.put("exports/fencepost/other.mark", &[], &other);
    let error = block_on(fence.mark(&"other".parse().unwrap())).unwrap_err();
    assert!(error.to_string().contains("ledger"), "{error:?}");
}
