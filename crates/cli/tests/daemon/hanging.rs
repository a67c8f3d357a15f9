//! Tests of watched files on a file system that hangs: a FUSE mount whose requests are never read.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use crate::agent::{count, has, wait_for};
use crate::common::{Home, wait_until};
use crate::scraping::Exporter;

/// A file system that is mounted over a directory. You can unmount it by dropping this value.
struct Hanging {
    path: CString,
    /// The requests wait while this file is open.
    _requests: File,
}

impl Hanging {
    /// Mounts the file system; `None` if the system does not allow this.
    fn mount(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let requests = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", requests.as_raw_fd());
        let options = CString::new(options).unwrap();
        let (name, kind) = (c"hanging".as_ptr(), c"fuse".as_ptr());
        // SAFETY: all strings end with a zero.
        let mounted =
            unsafe { libc::mount(name, path.as_ptr(), kind, 0, options.as_ptr().cast()) == 0 };
        mounted.then_some(Self { path, _requests: requests })
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // SAFETY: the path ends with a zero.
        unsafe { libc::umount2(self.path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Runs a test in a thread with a private mount namespace, which the test's child processes
/// inherit. The test returns false if it cannot mount.
fn with_own_mounts(test: fn() -> bool) {
    let run = move || {
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let (none, root) = (std::ptr::null(), c"/".as_ptr());
        // SAFETY: the path ends with a zero, and no other thread gets these mounts.
        let are_own = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, root, none, private, std::ptr::null()) == 0
        };
        are_own && test()
    };
    if !thread::spawn(run).join().unwrap() {
        eprintln!("NOT RUN: no file system of FUSE can be mounted here");
    }
}

#[test]
fn only_the_files_of_a_hanging_file_system_become_stale() {
    with_own_mounts(|| {
        let home = Home::new();
        for (directory, file) in [("good", "good/a.quipu"), ("bad", "bad/b.quipu")] {
            fs::create_dir(home.path(directory)).unwrap();
            count(&home, "inc", file, "jobs_total", "1");
        }
        let target = Exporter::start(&home, "level 1\n");
        let of_target = format!("{{job=\"app\",instance=\"{}\"}}", target.address());
        let scraped = format!("app={}", target.url);
        let places = ["--segments", "good", "--segments", "bad"];
        let flags = ["--scrape", &scraped, "--scrape-interval", "200ms"];
        let daemon = home.start(&[&places[..], &flags].concat());
        wait_for(&daemon, "jobs_total{segment=\"b\"} 1");
        wait_for(&daemon, &format!("level{of_target} 1"));
        let read = "quipu_segments_last_read_time_seconds{segment=\"b\"}";
        assert_eq!(daemon.sample("quipu_segments_places_late"), 0.0);

        let Some(hanging) = Hanging::mount(&home.path("bad")) else { return false };
        daemon.wait_for("a file system does not respond");
        let before = daemon.sample(read);
        for n in 2..6 {
            count(&home, "inc", "good/a.quipu", "jobs_total", "1");
            // Each scrape reads the files after the scrape has begun.
            assert!(has(&daemon, &format!("jobs_total{{segment=\"a\"}} {n}")));
            target.exposes(&format!("level {n}\n"));
            wait_for(&daemon, &format!("level{of_target} {n}"));
            assert!(has(&daemon, &format!("up{of_target} 1")));
        }
        // New files are found, too.
        count(&home, "inc", "good/c.quipu", "jobs_total", "7");
        wait_for(&daemon, "jobs_total{segment=\"c\"} 7");
        // Files that cannot be read are shown with their last values, and with the time of the last
        // reading.
        assert!(has(&daemon, "jobs_total{segment=\"b\"} 1"));
        assert_eq!(daemon.sample(read).to_bits(), before.to_bits());
        assert_eq!(daemon.sample("quipu_segments_places_late"), 1.0);

        drop(hanging);
        daemon.wait_for("a file system responds again");
        count(&home, "inc", "bad/b.quipu", "jobs_total", "1");
        wait_for(&daemon, "jobs_total{segment=\"b\"} 2");
        wait_until("it is read", || daemon.sample(read) > before);
        assert_eq!(daemon.sample("quipu_segments_places_late"), 0.0);
        true
    });
}

#[test]
fn a_file_system_that_hangs_from_the_start_holds_up_nothing_else() {
    with_own_mounts(|| {
        let home = Home::new();
        fs::create_dir(home.path("good")).unwrap();
        fs::create_dir(home.path("bad")).unwrap();
        count(&home, "inc", "good/a.quipu", "jobs_total", "1");
        let Some(_hanging) = Hanging::mount(&home.path("bad")) else { return false };
        let target = Exporter::start(&home, "level 1\n");
        let scraped = format!("app={}", target.url);
        let daemon = home.start(&["--segments", "bad", "--segments", "good", "--scrape", &scraped]);
        wait_for(&daemon, "jobs_total{segment=\"a\"} 1");
        wait_for(&daemon, &format!("up{{job=\"app\",instance=\"{}\"}} 1", target.address()));
        assert_eq!(daemon.sample("quipu_segments_places_late"), 1.0);
        assert_eq!(daemon.get("/metrics?segment=a").status, 200);
        // The contents of this place are unknown.
        assert_eq!(daemon.get("/metrics?segment=b").status, 503);
        daemon.stop();
        true
    });
}
