//! Tests of queues that are reopened, full, damaged, foreign, or on a failing disk.

use super::*;
use crate::coding::Coding;
use quipu::Registry;

const URL: &str = "http://a/w";
const LIMIT: u64 = 1 << 20;

fn open_with(directory: &Path, limit: u64) -> Result<Queue, String> {
    open_sharded(directory, limit, 1)
}

fn open_sharded(directory: &Path, limit: u64, shards: u8) -> Result<Queue, String> {
    let registry = Registry::new();
    let metrics = Metrics::new(&registry.prefix("quipu")).unwrap();
    Queue::open(directory, URL, limit, shards, metrics.receiver(URL), "name another directory")
}

fn open(directory: &Path) -> Queue {
    open_with(directory, LIMIT).unwrap()
}

fn body(text: &str) -> Body {
    let bytes = text.as_bytes().to_vec();
    let (form, coding) = (Form::Write2, Coding::Snappy);
    Body { form, coding, bytes, samples: 3, series: Vec::new(), ends: Vec::new() }
}

fn push(queue: &mut Queue, texts: &[&str]) -> Vec<Id> {
    texts.iter().map(|text| queue.push(0, 1000, &body(text)).unwrap()).collect()
}

/// Returns the bodies of all pending requests, in order.
fn texts(queue: &Queue) -> Vec<String> {
    let read = |request: &PendingRequest| {
        let bytes = fs::read(queue.path(request.id.0)).unwrap();
        let at = usize::try_from(request.id.1).unwrap();
        let (_, record) = Records::new(&bytes, at).next().unwrap();
        String::from_utf8(record.body.to_vec()).unwrap()
    };
    queue.pending.iter().map(read).collect()
}

/// Returns the paths of the record files.
fn files(queue: &Queue) -> Vec<PathBuf> {
    queue.files.keys().map(|number| queue.path(*number)).collect()
}

#[test]
fn pending_requests_keep_their_order_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    let ids = push(&mut queue, &["a", "b", "c"]);
    queue.finish(ids[1]);
    assert!(open_with(directory.path(), LIMIT).unwrap_err().contains("another daemon"));
    drop(queue);
    let mut queue = open(directory.path());
    assert_eq!(texts(&queue), ["a", "c"]);
    push(&mut queue, &["d"]);
    drop(queue);
    let mut queue = open(directory.path());
    for text in ["a", "c", "d"] {
        let (id, body) = queue.front(0).unwrap();
        assert_eq!((body.bytes, body.samples), (text.as_bytes().to_vec(), 3));
        queue.finish(id);
    }
    // A file without pending requests is removed.
    assert!(queue.front(0).is_none());
    assert_eq!((queue.bytes, files(&queue).len()), (0, 0));
    let left: Vec<_> = fs::read_dir(&queue.folder).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(fs::read_to_string(queue.folder.join("receiver")).unwrap(), format!("{URL}\n"));
}

#[test]
fn the_oldest_requests_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    let long = "x".repeat(50_000);
    for n in 0..100 {
        push(&mut queue, &[&format!("{n} {long}")]);
        assert!(queue.bytes <= LIMIT);
        let on_disk: u64 = files(&queue).iter().map(|file| file.metadata().unwrap().len()).sum();
        assert_eq!(on_disk, queue.bytes);
    }
    let left = texts(&queue);
    assert!(left.len() > 12 && left.last().unwrap().starts_with("99 "), "{}", left.len());
    assert_eq!(queue.metrics.full.get(), 3 * (100 - left.len() as u64));
    // A request that is larger than the queue does not displace other requests.
    assert!(queue.push(0, 1000, &body(&"y".repeat(2 << 20))).is_none());
    assert_eq!(texts(&queue), left);
    drop(queue);
    // A lower limit applies from the next start on.
    let queue = open_with(directory.path(), LIMIT / 4).unwrap();
    assert!(queue.bytes <= LIMIT / 4 && !queue.pending.is_empty());
}

#[test]
fn a_torn_tail_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    push(&mut queue, &["a", "b"]);
    let path = files(&queue).remove(0);
    drop(queue);
    let whole = fs::read(&path).unwrap();
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let queue = open(directory.path());
        let record = PREFIX + 1;
        let count = end.saturating_sub(HEADER.len()) / record;
        assert_eq!(queue.pending.len(), count, "{end}");
        let length = path.metadata().map_or(0, |file| file.len());
        let expected = if count == 0 { 0 } else { HEADER.len() + count * record };
        assert_eq!(length, expected as u64, "{end}");
    }
}

#[test]
fn foreign_and_damaged_files_leave_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    push(&mut queue, &["a", "b", "c"]);
    let path = files(&queue).remove(0);
    let folder = queue.folder.clone();
    drop(queue);
    let foreign = folder.join("0000000000000000.queue");
    fs::write(&foreign, "what others wrote there").unwrap();
    fs::create_dir(folder.join("00000000000000ff.queue")).unwrap();
    fs::write(folder.join("notes.queue"), "").unwrap();
    let mut queue = open(directory.path());
    assert_eq!(texts(&queue), ["a", "b", "c"]);
    assert_eq!(queue.metrics.file_errors.get(), 2);
    assert!(foreign.exists());
    // If a request is damaged while the daemon runs, only this request is dropped.
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER.len() + PREFIX] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(queue.front(0).unwrap().1.bytes, b"b");
    assert_eq!(queue.metrics.damaged.get(), 3);
    // A new file gets a new number.
    push(&mut queue, &["d"]);
    assert_eq!(texts(&queue), ["b", "c", "d"]);
}

#[test]
fn a_damaged_request_leaves_those_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    push(&mut queue, &["a", "b", "c", "d"]);
    let path = files(&queue).remove(0);
    drop(queue);
    let whole = fs::read(&path).unwrap();
    let record = PREFIX + 1;
    // Damage in the body of the second record, and in its length.
    for (at, samples) in [(PREFIX, 3), (9, 0)] {
        let mut bytes = whole.clone();
        bytes[HEADER.len() + record + at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let mut queue = open(directory.path());
        assert_eq!(texts(&queue), ["a", "c", "d"], "{at}");
        assert_eq!(queue.metrics.damaged.get(), samples);
        assert_eq!((queue.metrics.file_errors.get(), queue.bytes), (1, whole.len() as u64));
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(queue.front(0).unwrap().1.bytes, b"a");
    }
    // In a file with a damaged request and a torn tail, both are dropped.
    let mut bytes = whole[..whole.len() - 1].to_vec();
    bytes[HEADER.len() + PREFIX] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(texts(&open(directory.path())), ["b", "c"]);
    assert_eq!(path.metadata().unwrap().len(), (HEADER.len() + 3 * record) as u64);
}

#[test]
fn files_that_are_not_of_a_queue_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    push(&mut queue, &["a"]);
    let folder = queue.folder.clone();
    drop(queue);
    let other = directory.path().join("other");
    fs::write(&other, "of others").unwrap();
    let link = |to: &Path, name: &str| {
        let _ = fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    };
    let fifo = folder.join("0000000000000002.queue");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    link(Path::new("/dev/zero"), "0000000000000003.queue");
    link(&other, "0000000000000004.queue");
    link(&other, "receiver");
    fs::write(folder.join("ffffffffffffffff.queue"), "").unwrap();
    let mut queue = open(directory.path());
    assert_eq!(queue.metrics.file_errors.get(), 4);
    // A new file does not replace a foreign file of the same name.
    link(&other, "0000000000000005.queue");
    push(&mut queue, &["b"]);
    assert_eq!(texts(&queue), ["a", "b"]);
    assert!(folder.join("0000000000000006.queue").exists());
    assert_eq!(fs::read_to_string(&other).unwrap(), "of others");
    drop(queue);
    link(&other, "lock");
    let error = open_with(directory.path(), LIMIT).unwrap_err();
    assert!(error.contains("name another directory"), "{error}");
}

#[test]
fn a_disk_that_takes_nothing_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    let folder = queue.folder.clone();
    fs::rename(&folder, directory.path().join("away")).unwrap();
    assert!(queue.push(0, 1000, &body("a")).is_none());
    assert!(queue.push(0, 1000, &body("b")).is_none());
    assert_eq!((queue.metrics.write_errors.get(), queue.pending.len(), queue.bytes), (2, 0, 0));
    fs::rename(directory.path().join("away"), &folder).unwrap();
    push(&mut queue, &["c"]);
    assert_eq!(texts(&queue), ["c"]);
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open_with(&file, LIMIT).unwrap_err();
    assert!(error.contains("name another directory"), "{error}");
}

#[test]
fn a_request_that_always_fails_lets_others_pass() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open(directory.path());
    let ids = push(&mut queue, &["a", "b", "c"]);
    queue.blame(ids[0]);
    assert_eq!(texts(&queue), ["a", "b", "c"]);
    queue.blame(ids[0]);
    assert_eq!(texts(&queue), ["b", "c", "a"]);
    queue.show_age(4500);
    assert_eq!(queue.metrics.oldest_age.get().to_bits(), 3.5_f64.to_bits());
}

/// Finishes the requests of a shard until none can be sent. Returns their bodies.
fn sent(queue: &mut Queue, shard: u8) -> Vec<String> {
    let mut sent = Vec::new();
    while let Some((id, body)) = queue.front(shard) {
        sent.push(String::from_utf8(body.bytes).unwrap());
        queue.finish(id);
    }
    sent
}

#[test]
fn each_shard_sends_its_own_requests() {
    let directory = tempfile::tempdir().unwrap();
    let mut queue = open_sharded(directory.path(), LIMIT, 3).unwrap();
    for (shard, text) in [(0, "a0"), (1, "a1"), (2, "a2"), (0, "b0"), (1, "b1"), (2, "b2")] {
        queue.push(shard, 1000, &body(text)).unwrap();
    }
    assert_eq!(sent(&mut queue, 1), ["a1", "b1"]);
    // A request that always fails does not delay another shard.
    let (id, _) = queue.front(0).unwrap();
    queue.blame(id);
    queue.blame(id);
    assert_eq!(queue.front(0).unwrap().1.bytes, b"b0");
    drop(queue);
    let mut queue = open_sharded(directory.path(), LIMIT, 3).unwrap();
    assert_eq!(sent(&mut queue, 2), ["a2", "b2"]);
    assert_eq!(sent(&mut queue, 1), [""; 0]);
    assert_eq!(sent(&mut queue, 0), ["a0", "b0"]);
    assert_eq!(queue.bytes, 0);
}

#[test]
fn requests_of_another_number_of_shards_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let fill = |shards: u8, name: &str| {
        let mut queue = open_sharded(directory.path(), LIMIT, shards).unwrap();
        for (round, shard) in (0..2).flat_map(|round| (0..shards).map(move |s| (round, s))) {
            queue.push(shard, 1000, &body(&format!("{name}{round}{shard}"))).unwrap();
        }
    };
    fill(1, "one");
    fill(4, "four");
    fill(2, "two");
    let mut queue = open_sharded(directory.path(), LIMIT, 2).unwrap();
    // All requests of the first run belong to shard 0, and must be sent first.
    assert_eq!(sent(&mut queue, 1), [""; 0]);
    let (id, _) = queue.front(0).unwrap();
    queue.finish(id);
    assert!(queue.front(1).is_none());
    let (id, first) = queue.front(0).unwrap();
    assert_eq!(first.bytes, b"one10");
    queue.finish(id);
    // Shards 2 and 3 no longer exist.
    assert_eq!(sent(&mut queue, 1), ["four01", "four03", "four11", "four13"]);
    assert_eq!(sent(&mut queue, 0), ["four00", "four02", "four10", "four12", "two00", "two10"]);
    assert_eq!(sent(&mut queue, 1), ["two01", "two11"]);
    // A file of version 1 has no shards, so its requests belong to shard 0.
    fill_with_version_1(&queue);
    drop(queue);
    let mut queue = open_sharded(directory.path(), LIMIT, 2).unwrap();
    assert_eq!((sent(&mut queue, 1), sent(&mut queue, 0)), (vec![], vec!["old".to_owned()]));
}

/// Writes a file in the layout of version 1, which did not support shards.
fn fill_with_version_1(queue: &Queue) {
    let mut bytes = records::header(1).to_vec();
    let old = Record {
        is_done: false,
        time: 1000,
        samples: 1,
        form: Form::Write2,
        coding: Coding::Snappy,
        shard: 0,
        last_shard: 0,
        body: b"old",
    };
    old.encode(&mut bytes).unwrap();
    fs::write(queue.folder.join("0000000000000001.queue"), bytes).unwrap();
}

#[test]
fn a_snapshot_of_deltas_is_there_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let totals = |text: &str| [Body { form: Form::Totals, ..body(text) }];
    let restored = || {
        let mut queue = open_with(directory.path(), u64::MAX).unwrap();
        let restored = queue.restore().map_err(|error| error.to_string())?;
        let text = |body: &Body| String::from_utf8(body.bytes.clone()).unwrap();
        Ok::<_, String>(restored.map(|DeltaSnapshot { totals, time_ns, owed, is_whole }| {
            let [totals, owed] = [&totals, &owed].map(|all| all.iter().map(text).collect());
            (time_ns, [totals, owed], is_whole)
        }))
    };
    let expected = |time_ns, totals: &str, owed: &[&str], is_whole| {
        let owed: Vec<_> = owed.iter().map(|&text| text.to_owned()).collect();
        Ok(Some((time_ns, [vec![totals.to_owned()], owed], is_whole)))
    };
    assert_eq!(restored(), Ok(None));
    let mut queue = open_with(directory.path(), u64::MAX).unwrap();
    queue.begin_snapshot(7, &totals("a"), &[body("b"), body("c"), body("d")]).unwrap();
    let first = files(&queue).remove(0);
    queue.finish_next(3);
    queue.begin_snapshot(8, &totals("e"), &[body("f"), body("g")]).unwrap();
    assert!(first.exists());
    // The receiver accepted none of the requests.
    queue.take_back();
    drop(queue);
    assert_eq!(restored(), expected(7, "a", &[], false));
    let mut queue = open_with(directory.path(), u64::MAX).unwrap();
    queue.begin_snapshot(9, &totals("h"), &[body("i"), body("j")]).unwrap();
    let last = files(&queue).pop().unwrap();
    drop(queue);
    assert_eq!(restored(), expected(9, "h", &["i", "j"], true));
    // Only the last snapshot counts.
    assert!(!first.exists());
    let mut queue = open_with(directory.path(), u64::MAX).unwrap();
    queue.finish_next(1);
    drop(queue);
    assert_eq!(restored(), expected(9, "h", &["j"], false));
    let whole = fs::read(&last).unwrap();
    for at in (0..whole.len()).filter(|at| !(16..20).contains(&(at % (PREFIX + 1)))) {
        // The checksum does not cover the marks of done requests.
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        fs::write(&last, &damaged).unwrap();
        assert!(restored().is_err(), "{at}");
        fs::write(&last, &whole[..at]).unwrap();
        assert!(restored().is_err(), "{at}");
        fs::write(&last, &whole).unwrap();
    }
    // If the snapshot was replaced with a symbolic link, its pending requests are lost. The next
    // snapshot can still be written.
    fs::remove_file(&last).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &last).unwrap();
    assert!(restored().is_err());
    let mut queue = open_with(directory.path(), u64::MAX).unwrap();
    queue.begin_snapshot(10, &totals("k"), &[body("l")]).unwrap();
    drop(queue);
    assert_eq!(restored(), expected(10, "k", &["l"], true));
}
