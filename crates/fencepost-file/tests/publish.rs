//! Publishing a result behind a fence in a directory, by way of the library. Crashes and races of processes are tested with the
//! command.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fencepost_core::{Error, ErrorKind, Fence, FencingToken, Result, Stamp, StampHolder, block_on};
use fencepost_file::FileFence;
use tempfile::TempDir;

/// A fence, and a place where a job works.
struct Scene {
    directory: TempDir,
    fence: FileFence,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let url = format!("file:{}", directory.path().join("exports").display());
        let fence = FileFence::from_url(&url.parse().unwrap()).expect("the URL names a directory");
        Self { directory, fence }
    }

    /// A path where the job works.
    fn work(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn exports(&self, name: &str) -> PathBuf {
        self.work("exports").join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.work(name), text).unwrap();
        self.work(name)
    }

    fn seal(&self, stamp: &Stamp) {
        block_on(self.fence.seal(stamp)).expect("it is the greatest stamp");
    }

    fn publish(&self, stamp: &Stamp, path: impl AsRef<Path>) -> Result<PathBuf> {
        block_on(self.fence.publish(stamp, path))
    }

    /// How many entries a folder of the fence has for `lock`.
    fn count(&self, folder: &str, lock: &str) -> usize {
        fs::read_dir(self.exports(folder).join(lock)).map_or(0, Iterator::count)
    }
}

fn stamp(lock: &str, token: u64) -> Stamp {
    Stamp {
        lock: lock.parse().unwrap(),
        token: FencingToken::try_from(token).unwrap(),
        holder: StampHolder::new("a").unwrap(),
    }
}

#[track_caller]
fn assert_fails(answer: Result<PathBuf>, kind: ErrorKind, says: &str) -> Error {
    let error = answer.expect_err("it cannot be published");
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(format!("{error:?}").contains(says), "{says:?} in {error:?}");
    error
}

#[test]
fn sealed_stamp_publishes_and_no_other_does() {
    let scene = Scene::new();
    let [one, two, three] = ["one", "two", "three"].map(|text| scene.write(text, text));
    assert_fails(scene.publish(&stamp("totals", 8), &one), ErrorKind::Stale, "seal first");
    assert!(!scene.exports("").exists(), "nothing was made");
    scene.seal(&stamp("totals", 8));
    let name = scene.publish(&stamp("totals", 8), &one).unwrap();
    assert_eq!((fs::read(&name).unwrap(), name), (b"one".to_vec(), scene.exports("totals")));
    scene.publish(&stamp("totals", 8), &two).expect("the same holder may publish again");
    scene.seal(&stamp("totals", 9));
    assert_eq!(fs::read(scene.exports("totals")).unwrap(), b"two", "a seal alone changes nothing");
    assert_fails(scene.publish(&stamp("totals", 8), &three), ErrorKind::Stale, "mark is 9");
    assert_fails(scene.publish(&stamp("totals", 10), &three), ErrorKind::Stale, "seal first");
    let other = Stamp { holder: StampHolder::default(), ..stamp("totals", 9) };
    assert_fails(scene.publish(&other, &three), ErrorKind::Stale, "another holder");
    assert_eq!(fs::read(scene.exports("totals")).unwrap(), b"two");
    scene.publish(&stamp("totals", 9), &three).unwrap();
    assert_eq!(fs::read(scene.exports("totals")).unwrap(), b"three");
}

#[test]
fn result_before_is_kept_and_older_ones_are_removed() {
    let scene = Scene::new();
    for (token, text) in (1..).zip(["one", "two", "three", "four"]) {
        scene.seal(&stamp("totals", token));
        let before = fs::canonicalize(scene.exports("totals"));
        let open = before.as_ref().ok().map(|before| File::open(before).unwrap());
        scene.publish(&stamp("totals", token), scene.write("work", text)).unwrap();
        assert_eq!(fs::read_to_string(scene.exports("totals")).unwrap(), text);
        assert_eq!(scene.count(".results", "totals"), 2.min(usize::try_from(token).unwrap()));
        if let (Ok(before), Some(open)) = (before, open) {
            assert!(before.exists(), "who reads the result before finds it");
            assert!(open.metadata().unwrap().len() > 0);
        }
        assert_eq!(scene.count(".staging", "totals"), 0);
    }
}

#[test]
fn directory_is_published_with_all_that_is_in_it() {
    let scene = Scene::new();
    let (work, moment) = (scene.work("work"), UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789));
    let awkward = "a b/ü\n\u{1f600}/-rf";
    fs::create_dir_all(work.join(awkward)).unwrap();
    fs::write(work.join("run"), "#!/bin/sh\n").unwrap();
    fs::write(work.join(awkward).join("deep"), "deep").unwrap();
    symlink("../nowhere/at all", work.join("link")).unwrap();
    for (path, mode) in [("run", 0o754), ("a b", 0o500), ("", 0o555)] {
        let open = File::open(work.join(path)).unwrap();
        open.set_permissions(Permissions::from_mode(mode)).unwrap();
        open.set_times(FileTimes::new().set_modified(moment)).unwrap();
    }
    scene.seal(&stamp("a/ü", 1));
    let name = scene.publish(&stamp("a/ü", 1), &work).unwrap();
    assert_eq!(name, scene.exports("a%2F%C3%BC"));
    assert_eq!(fs::read(name.join(awkward).join("deep")).unwrap(), b"deep");
    assert_eq!(fs::read_link(name.join("link")).unwrap(), Path::new("../nowhere/at all"));
    for (path, mode) in [("run", 0o754), ("a b", 0o500), ("", 0o555)] {
        let metadata = fs::metadata(name.join(path)).unwrap();
        assert_eq!(metadata.mode() & 0o7777, mode, "{path:?}");
        assert_eq!(metadata.modified().unwrap(), moment, "{path:?}");
    }
    let times = |path: &Path| fs::symlink_metadata(path.join("link")).unwrap().modified().unwrap();
    assert_eq!(times(&name), times(&work));
    // Whoever publishes next can remove what nobody may write.
    for token in 2..5 {
        scene.seal(&stamp("a/ü", token));
        scene.publish(&stamp("a/ü", token), &work).unwrap();
    }
    assert_eq!(scene.count(".results", "a%2F%C3%BC"), 2);
}

#[test]
fn huge_file_keeps_its_holes() {
    let scene = Scene::new();
    let (work, length, far) = (scene.work("huge"), 1 << 34, (1 << 33) + 12_345);
    let file = File::create(&work).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"far", far).unwrap();
    drop(file);
    scene.seal(&stamp("huge", 1));
    let name = scene.publish(&stamp("huge", 1), &work).unwrap();
    let (copy, mut bytes) = (File::open(&name).unwrap(), [0; 5]);
    let metadata = copy.metadata().unwrap();
    assert_eq!(metadata.len(), length);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks are in use", metadata.blocks());
    copy.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"begin");
    copy.read_exact_at(&mut bytes, far - 1).unwrap();
    assert_eq!(&bytes, b"\0far\0");
}

#[test]
fn what_cannot_be_copied_is_refused_and_leaves_the_current_result() {
    let scene = Scene::new();
    scene.seal(&stamp("totals", 1));
    let sealed = stamp("totals", 1);
    scene.publish(&sealed, scene.write("work", "good")).unwrap();
    let folder = scene.work("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    let _socket = UnixListener::bind(folder.join("socket")).unwrap();
    assert_fails(scene.publish(&sealed, &folder), ErrorKind::InvalidArgument, "socket is a socket");
    fs::remove_file(folder.join("socket")).unwrap();
    assert_fails(scene.publish(&sealed, "/dev/null"), ErrorKind::InvalidArgument, "a device");
    assert_fails(scene.publish(&sealed, scene.work("nothing")), ErrorKind::InvalidArgument, "nothing");
    symlink("nothing", scene.work("dangling")).unwrap();
    assert_fails(scene.publish(&sealed, scene.work("dangling")), ErrorKind::InvalidArgument, "dangling");
    let around = scene.directory.path();
    assert_fails(scene.publish(&sealed, around), ErrorKind::InvalidArgument, "own directory");
    assert_eq!(fs::read(scene.exports("totals")).unwrap(), b"good");
    assert_eq!((scene.count(".staging", "totals"), scene.count(".results", "totals")), (0, 1));
    symlink("folder", scene.work("link")).unwrap();
    scene.publish(&sealed, scene.work("link")).expect("the path itself may be a link");
    assert_eq!(fs::read(scene.exports("totals/file")).unwrap(), b"x");
}

#[test]
fn nothing_else_is_ever_replaced() {
    let scene = Scene::new();
    let work = scene.write("work", "x");
    for lock in ["a.mark", "a.fence", "a.lock", "a.tok", "a.mark.new"] {
        scene.seal(&stamp(lock, 1));
        assert_fails(scene.publish(&stamp(lock, 1), &work), ErrorKind::InvalidArgument, lock);
    }
    scene.seal(&stamp("totals", 1));
    fs::write(scene.exports("totals"), "somebody's").unwrap();
    assert_fails(scene.publish(&stamp("totals", 1), &work), ErrorKind::Unsupported, "out of the way");
    assert_eq!(fs::read(scene.exports("totals")).unwrap(), b"somebody's");
    fs::remove_file(scene.exports("totals")).unwrap();
    symlink("elsewhere", scene.exports("totals")).unwrap();
    assert_fails(scene.publish(&stamp("totals", 1), &work), ErrorKind::Unsupported, "out of the way");
    fs::remove_file(scene.exports("totals")).unwrap();
    let outside = scene.work("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, scene.exports(".results")).unwrap();
    assert_fails(scene.publish(&stamp("totals", 1), &work), ErrorKind::Unsupported, ".results");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn staging_of_the_dead_is_removed_and_of_the_living_is_not() {
    let scene = Scene::new();
    let work = scene.write("work", "x");
    scene.seal(&stamp("totals", 8));
    scene.publish(&stamp("totals", 8), &work).unwrap();
    let folder = |entry: &str| {
        let folder = scene.exports(".staging/totals").join(entry);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("result"), "half").unwrap();
        folder
    };
    let [older, dead, alive, newer] = ["7-a", "8-b", "8-c", "9-d"].map(folder);
    let held = File::open(&alive).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    fs::write(scene.exports(".results/totals/8-leftover"), "of a crash").unwrap();
    scene.publish(&stamp("totals", 8), &work).unwrap();
    let left = [&older, &dead, &alive, &newer].map(|folder| folder.exists());
    assert_eq!(left, [false, false, true, true]);
    assert_eq!(scene.count(".results", "totals"), 2, "the current one and the one before");
}

/// The mark is looked at again when the copy is there: it may have been raised meanwhile.
#[test]
fn seal_during_the_copy_refuses_the_result() {
    let scene = Scene::new();
    let work = scene.work("work");
    fs::create_dir(&work).unwrap();
    for index in 0..300 {
        fs::write(work.join(index.to_string()), "x").unwrap();
    }
    scene.seal(&stamp("totals", 8));
    scene.publish(&stamp("totals", 8), scene.write("first", "first")).unwrap();
    let answer = std::thread::scope(|scope| {
        let publishing = scope.spawn(|| scene.publish(&stamp("totals", 8), &work));
        while scene.count(".staging", "totals") == 0 {
            std::thread::yield_now();
        }
        scene.seal(&stamp("totals", 9));
        publishing.join().unwrap()
    });
    assert_fails(answer, ErrorKind::Stale, "mark is 9");
    assert_eq!(fs::read(scene.exports("totals")).unwrap(), b"first");
    assert_eq!(scene.count(".staging", "totals"), 0);
}

#[test]
fn file_that_is_written_meanwhile_is_no_result() {
    const SIZE: usize = 64 << 20;
    let scene = Scene::new();
    let work = scene.work("work");
    fs::write(&work, vec![7; SIZE]).unwrap();
    let file = File::options().write(true).open(&work).unwrap();
    scene.seal(&stamp("totals", 8));
    let stop = AtomicBool::new(false);
    let write = || {
        for at in (0..).step_by(4096).map(|at| at % SIZE as u64) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            file.write_all_at(&[1; 4096], at).unwrap();
        }
    };
    // On a busy machine the writer may not come to write while the file is copied.
    let refused = std::thread::scope(|scope| {
        scope.spawn(write);
        let refused = (0..50).find_map(|_| scene.publish(&stamp("totals", 8), &work).err());
        stop.store(true, Ordering::Relaxed);
        refused
    });
    assert_fails(Err(refused.expect("it was written meanwhile")), ErrorKind::Unavailable, "has changed");
}
