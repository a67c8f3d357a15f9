//! A background thread that ends when you drop its handle.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// The running thread. Dropping this value stops the thread, and waits for its end.
#[derive(Debug)]
pub struct Background {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread. `run` must return when the channel that it receives is disconnected.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub fn start(
        name: &str,
        run: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already reported its panic.
            let _ = thread.join();
        }
    }
}
