//! What stands on the screen, at all sizes.

use fencepost::{Error, ErrorKind, HolderId, Reader, Waiter};

use super::*;
use crate::commands::place::Source;

const SIZES: [(usize, usize); 6] = [(80, 24), (40, 24), (20, 10), (200, 60), (10, 3), (64, 12)];

fn places(count: usize) -> Vec<Place> {
    let url = |number: usize| format!("redis://h{number}").parse().unwrap();
    (0..count).map(|number| Place { url: url(number), source: Source::Flag, choice: None }).collect()
}

/// So many seconds after noon.
fn at(seconds: u64) -> Instant {
    let moment = Moment::from_nanos(1_000_000_000).after(Duration::from_secs(seconds));
    Instant { moment, wall_micros: (1_796_040_000 + seconds) * 1_000_000 }
}

fn held(name: &str) -> LockState {
    let mut state = LockState::free(name.parse().unwrap());
    state.status = Status::Held;
    state.holder = Some(HolderId::from_bytes([1; 16]));
    state.label = Some("root@web-1: import.sh (fencepost pid 4711)".to_owned());
    state.token = Some(1_796_040_000_123_456.try_into().unwrap());
    state.since_micros = Some(at(0).wall_micros);
    state.remaining = Some(Duration::from_secs(30));
    state
}

fn change(kind: ChangeKind, state: LockState) -> News {
    let at_micros = at(0).wall_micros;
    News { place: 0, told: Ok(vec![Change { at_micros, kind, state }]) }
}

fn text(board: &mut Board<'_>, columns: usize, rows: usize, seconds: u64) -> String {
    let lines = board.lines(columns, rows, at(seconds));
    assert!(lines.len() <= rows, "{columns}x{rows}: {lines:?}");
    assert!(lines.iter().all(|line| line.text.chars().count() <= columns), "{columns}x{rows}: {lines:?}");
    lines.into_iter().map(|line| line.text + "\n").collect()
}

fn crowded() -> Vec<News> {
    let mut shared = held("reports");
    let reader = |number: u8| Reader {
        holder: HolderId::from_bytes([number; 16]),
        label: Some(format!("reader {number}")),
        token: u64::from(number).try_into().unwrap(),
        since_micros: None,
        remaining: Some(Duration::from_secs(9)),
    };
    shared.readers = vec![reader(1), reader(2)];
    let mut waited = held(&format!("ledger/{}", "x".repeat(60)));
    waited.waiters = vec![Waiter { holder: None, label: Some("root@web-2".to_owned()), since_micros: None }];
    let mut resting = LockState::free("rests".parse().unwrap());
    resting.status = Status::Resting;
    let states = [shared, waited, resting].into_iter();
    states
        .chain((0..30).map(|number| held(&format!("z/{number}"))))
        .map(|state| change(ChangeKind::Held, state))
        .collect()
}

#[test]
fn every_size_is_filled_and_never_overrun() {
    for (columns, rows) in SIZES {
        let (places, news) = (places(2), crowded());
        let mut board = Board::new(&places, "");
        assert!(text(&mut board, columns, rows, 0).contains("all loc"), "{columns}x{rows}");
        board.begin(Vec::new(), at(0));
        assert!(text(&mut board, columns, rows, 0).contains("all loc"), "{columns}x{rows}");
        for news in news {
            board.take_in(news, at(0));
            text(&mut board, columns, rows, 1);
        }
        let error = Error::new(ErrorKind::Unavailable, "look", "x".repeat(300));
        board.take_in(News { place: 1, told: Err(error) }, at(2));
        let shown = text(&mut board, columns, rows, 3);
        assert_eq!((10..60).contains(&rows), shown.contains("more"), "{shown}");
        assert!(rows < 10 || shown.contains("q: end"), "{shown}");
    }
}

#[test]
fn remaining_time_counts_down_and_a_renewal_raises_it() {
    let places = places(1);
    let mut board = Board::new(&places, "");
    board.take_in(change(ChangeKind::Held, held("orders")), at(0));
    for (seconds, left) in [(0, " 30s "), (10, " 20s "), (40, " 0s ")] {
        assert!(text(&mut board, 80, 24, seconds).contains(left), "{left}");
    }
    board.take_in(change(ChangeKind::Renewed, held("orders")), at(40));
    let shown = text(&mut board, 80, 24, 41);
    assert!(shown.contains(" 29s ") && shown.contains(" 41s "), "{shown}");
    assert_eq!(shown.matches("orders").count(), 2, "a renewal is no change to tell of: {shown}");
}

#[test]
fn lock_that_changed_last_is_marked_without_colours() {
    let places = places(1);
    let mut board = Board::new(&places, "");
    for name in ["a", "b", "c"] {
        board.take_in(change(ChangeKind::Held, held(name)), at(0));
    }
    board.take_in(change(ChangeKind::Waiters, held("b")), at(1));
    board.take_in(change(ChangeKind::Renewed, held("c")), at(2));
    for columns in [30, 80, 200] {
        let marked: Vec<String> = board
            .lines(columns, 40, at(2))
            .into_iter()
            .map(|line| line.text)
            .filter(|text| text.starts_with("* ") && !text.contains("q: end"))
            .collect();
        assert_eq!(marked.len(), 1, "{marked:?}");
        assert!(marked[0].starts_with("* b"), "{marked:?}");
    }
}

#[test]
fn what_was_there_at_the_beginning_is_no_change() {
    let places = places(1);
    let mut board = Board::new(&places, "");
    board.begin(vec![change(ChangeKind::Held, held("orders"))], at(0));
    let shown = text(&mut board, 80, 24, 1);
    assert!(shown.contains("all locks: 1 not free") && shown.contains("\n  orders  held"), "{shown}");
    assert_eq!(shown.matches("orders").count(), 1, "{shown}");
}

#[test]
fn lock_that_came_free_is_shown_for_a_while() {
    let places = places(1);
    let mut board = Board::new(&places, "orders");
    board.begin(Vec::new(), at(0));
    board.take_in(change(ChangeKind::Held, held("orders")), at(0));
    board.take_in(change(ChangeKind::Free, LockState::free("orders".parse().unwrap())), at(5));
    let shown = text(&mut board, 80, 24, 6);
    assert!(shown.contains("* orders  free"), "{shown}");
    let shown = text(&mut board, 80, 24, 20);
    assert!(shown.contains("orders: none is held") && shown.contains("12:00:00 orders free"), "{shown}");
    assert!(!shown.contains("* orders"), "{shown}");
}

#[test]
fn outage_is_shown_until_it_is_over() {
    let places = places(1);
    let mut board = Board::new(&places, "");
    board.take_in(change(ChangeKind::Held, held("orders")), at(0));
    let error = Error::new(ErrorKind::Unavailable, "list the locks", "connection refused\u{1b}[2J");
    board.take_in(News { place: 0, told: Err(error) }, at(3));
    let shown = text(&mut board, 80, 24, 5);
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("! redis://h0 cannot be reached since 12:00:03: cannot list the locks"), "{shown}");
    assert!(shown.contains("orders") && !shown.contains('\u{1b}'), "{shown}");
    board.take_in(News { place: 0, told: Ok(Vec::new()) }, at(6));
    let shown = text(&mut board, 80, 24, 7);
    assert!(
        !shown.contains("! redis") && shown.contains("12:00:06 redis://h0 can be reached again"),
        "{shown}"
    );
}

#[test]
fn those_who_share_and_those_who_wait_stand_below_their_lock() {
    let places = places(1);
    let mut board = Board::new(&places, "");
    for news in crowded().into_iter().take(2) {
        board.take_in(news, at(0));
    }
    for columns in [40, 80, 150] {
        let shown = text(&mut board, columns, 50, 1);
        for part in ["shared by reader 2, token 2", "waits: root@web-2", "shared"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }
}

#[test]
fn text_that_is_too_long_ends_with_dots_that_every_terminal_has() {
    for (columns, shown) in [(9, "ledger/12"), (8, "ledge..."), (4, "l..."), (3, "..."), (1, ".")] {
        assert_eq!(cut("ledger/12", columns), shown);
    }
}
