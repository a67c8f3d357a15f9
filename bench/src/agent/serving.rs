//! A watcher: the daemon that shows a folder of segments, and a scraper that asks it ten times a
//! second. And a target for scrapers: a server of expositions.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::agents::{Program, Running};
use super::{Bench, MEMORY, OTHER_CORE, PATIENCE};
use crate::measure::pin;
use crate::server;
use crate::{Error, Result};

/// The pause between two scrapes.
const PAUSE: Duration = Duration::from_millis(100);

/// A daemon and its scraper.
pub(super) struct Watcher {
    /// The number of scrapes that showed a segment.
    scraper: Option<JoinHandle<Result<u64>>>,
    has_ended: Arc<AtomicBool>,
    _running: Running,
    /// The folder for the files of the daemon.
    _folder: tempfile::TempDir,
}

impl Watcher {
    /// Watches the segments in a folder, which may not exist yet. Both processes run on the core
    /// where no operation is timed.
    pub(super) fn start(bench: &Bench, folder: &Path) -> Result<Watcher> {
        let option = format!("--segments={}", folder.display());
        let own = super::folder(Path::new(MEMORY))?;
        let running = Program::Quipu.start(bench, own.path(), &[option])?;
        let (address, has_ended) = (running.address, Arc::new(AtomicBool::new(false)));
        let its = Arc::clone(&has_ended);
        let scraper = std::thread::spawn(move || {
            pin(OTHER_CORE);
            scrape(address, &its)
        });
        Ok(Watcher { scraper: Some(scraper), has_ended, _running: running, _folder: own })
    }

    /// Ends the watcher, and returns the number of scrapes that showed a segment.
    pub(super) fn stop(mut self) -> Result<u64> {
        self.has_ended.store(true, Ordering::Relaxed);
        match self.scraper.take().map(JoinHandle::join) {
            Some(Ok(scrapes)) => scrapes,
            _ => Err(Error::report("the scraper panicked")),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

fn scrape(address: SocketAddr, has_ended: &AtomicBool) -> Result<u64> {
    let mut scrapes = 0;
    while !has_ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let text = server::get(address, "/metrics", PATIENCE)
            .map_err(|error| Error::command("GET /metrics", error.to_string()))?;
        let is_shown = b"{segment=\"";
        scrapes += u64::from(text.windows(is_shown.len()).any(|bytes| bytes == is_shown));
        std::thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
    }
    Ok(scrapes)
}

/// A server that responds to each request with an exposition. It ends with this program.
pub(super) struct Target {
    pub(super) address: SocketAddr,
}

impl Target {
    /// Serves the result of a function, on the core of loads.
    pub(super) fn start(text: impl Fn() -> String + Send + Sync + 'static) -> Result<Target> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let failed = |error| Error::command("listen on 127.0.0.1", format!("{error}"));
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let text = Arc::new(text);
        std::thread::spawn(move || {
            pin(OTHER_CORE);
            for stream in listener.incoming().flatten() {
                let text = Arc::clone(&text);
                // If the client closes the connection, the thread ends with an error.
                std::thread::spawn(move || _ = serve(stream, &*text));
            }
        });
        Ok(Target { address })
    }
}

fn serve(mut stream: TcpStream, text: &dyn Fn() -> String) -> std::io::Result<()> {
    let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") else {
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                read => head.extend_from_slice(&chunk[..read]),
            }
            continue;
        };
        head.drain(..end + 4);
        let body = text();
        let fields = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n";
        stream.write_all(format!("{fields}Content-Length: {}\r\n\r\n", body.len()).as_bytes())?;
        stream.write_all(body.as_bytes())?;
    }
}
