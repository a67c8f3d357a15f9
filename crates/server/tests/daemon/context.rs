//! Labels of segments from the contexts that their processes publish: real processes, whose memory
//! the daemon reads.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

use quipu::{CounterFamily, Description, Registry};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{PTracer, set_ptracer};

use super::agent::{count, has, wait_for};
use crate::common::{Daemon, Home, wait_until};
use crate::otlp_output::{Receiver, Reply};

/// A process that has a segment open and room for a context, and is killed in the end.
struct Publisher {
    child: Child,
    /// The room: its address in the process, and its file.
    address: u64,
    memory: File,
}

/// The variable with the segment of a publisher.
const HELD: &str = "QUIPU_TEST_HELD";
/// The bytes of the room.
const ROOM: usize = 1 << 17;
/// Where payloads are in the room.
const PAYLOAD: u64 = 64;

/// The program of a publisher. It runs until it is killed.
#[test]
#[ignore = "a process that other tests start"]
fn a_program_has_room_for_a_context() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let registry = Registry::open(path).unwrap();
    let work = Description::new("work", "").labels(["job"]);
    let work: CounterFamily<[&str; 1]> = registry.register(work).unwrap();
    work.inc(&["a"]);
    let file = memfd_create("OTEL_CTX", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, ROOM as u64).unwrap();
    let (access, null) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
    // SAFETY: the kernel chooses the address, so nothing is there.
    let address = unsafe { mmap(null, ROOM, access, MapFlags::SHARED, &file, 0) }.unwrap();
    // Where the kernel asks for that, the daemon may read the memory.
    let _ = set_ptracer(PTracer::Any);
    eprintln!("{} {}", address as usize, file.as_raw_fd());
    loop {
        std::thread::park();
    }
}

impl Publisher {
    fn start(home: &Home, segment: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let program = "context::a_program_has_room_for_a_context";
        command.args(["--ignored", "--exact", "--nocapture", program]);
        command.env(HELD, home.path(segment)).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let (address, file) = line.trim_end().split_once(' ').expect(&line);
        let memory = format!("/proc/{}/fd/{file}", child.id());
        let memory = File::options().write(true).open(memory).unwrap();
        Self { child, address: address.parse().unwrap(), memory }
    }

    /// Publishes a context, or another one.
    fn publish(&self, time: u64, payload: &[u8]) {
        self.header(0, 0, 0);
        self.memory.write_all_at(payload, PAYLOAD).unwrap();
        self.header(time, payload.len().try_into().unwrap(), self.address + PAYLOAD);
    }

    /// Writes the header of a context.
    fn header(&self, time: u64, bytes: u32, address: u64) {
        let numbers = [&2_u32.to_le_bytes()[..], &bytes.to_le_bytes()[..]].concat();
        let header = [b"OTEL_CTX", &numbers[..], &time.to_le_bytes(), &address.to_le_bytes()];
        self.memory.write_all_at(&header.concat(), 0).unwrap();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of a message.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u8::try_from(body.len()).unwrap();
    // Of one or two bytes.
    let length = if length < 128 { vec![length] } else { vec![length, 1] };
    [&[number << 3 | 2], &length[..], body].concat()
}

/// A resource with these attributes.
fn resource(attributes: &[(&str, &str)]) -> Vec<u8> {
    let attribute = |(key, text): &(&str, &str)| {
        let value = field(2, &field(1, text.as_bytes()));
        field(1, &[field(1, key.as_bytes()), value].concat())
    };
    attributes.iter().map(attribute).collect::<Vec<_>>().concat()
}

/// The segments in each state.
fn states(daemon: &Daemon) -> [f64; 4] {
    ["read", "none", "failed", "unseen"]
        .map(|state| daemon.sample(&format!("quipu_segments_contexts{{state=\"{state}\"}}")))
}

#[test]
fn a_process_gives_labels_to_its_segment() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let flags = ["--segments", "run", "--segments-otel-context", "on"];
    let daemon = home.start(&[&flags[..], &["--otlp-promote", "deployment.environment"]].concat());
    let publisher = Publisher::start(&home, "run/app.quipu");
    count(&home, "inc", "run/cron.quipu", "jobs_total", "1");
    wait_for(&daemon, "work_total{segment=\"app\",job=\"a\"} 1");
    wait_for(&daemon, "jobs_total{segment=\"cron\"} 1");
    wait_until("both have none", || states(&daemon) == [0.0, 2.0, 0.0, 0.0]);
    // The context comes later than the segment.
    publisher.publish(
        1,
        &resource(&[
            ("service.namespace", "shop"),
            ("service.name", "cart"),
            ("service.instance.id", "i-1"),
            ("deployment.environment", "test"),
            ("os.type", "linux"),
        ]),
    );
    let of_instance = |instance: &str| {
        let own = "deployment_environment=\"test\",exported_job=\"a\"";
        format!("work_total{{segment=\"app\",job=\"shop/cart\",instance=\"{instance}\",{own}}} 1")
    };
    wait_for(&daemon, &of_instance("i-1"));
    assert!(has(&daemon, "jobs_total{segment=\"cron\"} 1"));
    assert_eq!(states(&daemon), [1.0, 1.0, 0.0, 0.0]);
    // While it is changed, what was read before is shown; then the new one, in the later form.
    publisher.header(0, 0, 0);
    assert!(has(&daemon, &of_instance("i-1")));
    let later = resource(&[
        ("service.instance.id", "i-2"),
        ("deployment.environment", "test"),
        ("service.name", "shop/cart"),
    ]);
    publisher.publish(2, &[field(1, &later), field(2, b"\x0a\x01k")].concat());
    assert!(has(&daemon, &of_instance("i-2")));
    // The labels outlive the process.
    drop(publisher);
    assert!(has(&daemon, &of_instance("i-2")));
    assert_eq!(daemon.sample("quipu_segments_open{segment=\"app\"}"), 0.0);
    assert_eq!(states(&daemon), [1.0, 1.0, 0.0, 0.0]);
    // The next process has labels of its own.
    let publisher = Publisher::start(&home, "run/app.quipu");
    publisher.publish(1, &resource(&[("service.name", "next")]));
    wait_until("the next process", || {
        daemon.get("/metrics").text().contains("{segment=\"app\",job=\"next\",exported_job=\"a\"}")
    });
    daemon.stop();
}

#[test]
fn a_process_is_a_resource_of_what_is_sent_by_otlp() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let publisher = Publisher::start(&home, "run/app.quipu");
    let program = [
        ("service.namespace", "shop"),
        ("service.name", "cart"),
        ("service.instance.id", "i-1"),
        ("deployment.environment", "test"),
    ];
    publisher.publish(1, &resource(&program));
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let other = home.start(&["--state", "other.quipu"]);
    let url = format!("http://{}", other.address());
    let flags = ["--segments", "run", "--segments-otel-context", "on", "--otlp-interval", "100ms"];
    let more = ["--otlp", &receiver.url, "--otlp", &url];
    let daemon = home.start(&[&flags[..], &more].concat());
    let mut sent = None;
    wait_until("the labels", || {
        sent = receiver.last("work_total{exported_job=\"a\",segment=\"app\"}");
        sent.as_ref().is_some_and(|point| point.resource.contains("cart"))
    });
    let expected = "service.namespace=\"shop\",service.name=\"cart\",service.instance.id=\"i-1\"";
    assert_eq!(sent.unwrap().resource, expected);
    let own = "exported_job=\"a\",instance=\"i-1\",job=\"shop/cart\"";
    wait_for(&other, &format!("work_total{{{own},segment=\"app\"}} 1"));
    daemon.stop();
}

#[test]
fn labels_of_paths_precede_those_of_processes() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let publisher = Publisher::start(&home, "run/app.quipu");
    publisher.publish(1, &resource(&[("service.name", "cart"), ("service.instance.id", "i-1")]));
    let flags = ["--segments", "run", "--segments-labels", "run/{instance}.quipu"];
    let daemon = home.start(&[&flags[..], &["--segments-otel-context"]].concat());
    let labels = "segment=\"app\",instance=\"app\",job=\"cart\",exported_instance=\"i-1\"";
    wait_for(&daemon, &format!("work_total{{{labels},exported_job=\"a\"}} 1"));
    daemon.stop();
    // Nothing is read unless the flag asks for it.
    let daemon = home.start(&["--segments", "run"]);
    wait_for(&daemon, "work_total{segment=\"app\",job=\"a\"} 1");
    assert!(!daemon.get("/metrics").text().contains("quipu_segments_contexts"));
}

#[test]
fn hostile_contexts_give_no_labels() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let publisher = Publisher::start(&home, "run/app.quipu");
    let (room, payload) = (publisher.address, resource(&[("service.name", "cart")]));
    publisher.memory.write_all_at(&payload, PAYLOAD).unwrap();
    let (there, bytes) = (room + PAYLOAD, u32::try_from(payload.len()).unwrap());
    for (time, bytes, address) in [
        (0, bytes, there),
        (1, u32::MAX, there),
        (1, (1 << 16) + 1, there),
        (1, bytes, 0xdead_beef),
        (1, bytes, u64::MAX - 3),
        (1, bytes, room + ROOM as u64 - 1),
        // A payload that ends early.
        (1, bytes - 1, there),
    ] {
        publisher.header(time, bytes, address);
        let daemon = home.start(&["--segments", "run", "--segments-otel-context", "on"]);
        wait_for(&daemon, "work_total{segment=\"app\",job=\"a\"} 1");
        wait_until("it cannot be read", || states(&daemon) == [0.0, 0.0, 1.0, 0.0]);
        // One that is mended is read.
        publisher.publish(2, &payload);
        wait_for(&daemon, "work_total{segment=\"app\",job=\"cart\",exported_job=\"a\"} 1");
        daemon.stop();
    }
}
