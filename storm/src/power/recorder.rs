//! An in-memory file system with a single directory. It records the received writes and syncs in
//! order.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

/// An event of the file system. Files are identified by inode number.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Write {
        file: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Length {
        file: u64,
        length: u64,
    },
    Sync {
        file: u64,
    },
    Link {
        file: u64,
        name: OsString,
    },
    Unlink {
        name: OsString,
    },
    SyncDirectory,
    /// The program reached this point, and everything it synced before is on the disk.
    Mark(u64),
}

/// The events so far, and the current files from the view of programs.
#[derive(Debug, Default)]
struct State {
    log: Vec<Event>,
    files: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<OsString, u64>,
}

/// The file system. Clones share its state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<State>>);

/// The prefix of directories that mark a point. A program sets an [`Event::Mark`] when it creates a
/// directory with this prefix and a number.
pub(crate) const MARK: &str = "mark-";

const TTL: Duration = Duration::from_secs(3600);
const FREE_BLOCKS: u64 = 1 << 20;

impl Recorder {
    /// Returns the events so far.
    pub(crate) fn log(&self) -> Vec<Event> {
        self.state().log.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn attributes(&self, file: u64) -> Option<FileAttr> {
        let directory = file == INodeNo::ROOT.0;
        let size = if directory { 0 } else { self.files.get(&file)?.len() as u64 };
        Some(FileAttr {
            ino: INodeNo(file),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o755 } else { 0o600 },
            nlink: 1,
            // SAFETY: The call only reads a number of this process.
            uid: unsafe { libc::geteuid() },
            // SAFETY: The same as above.
            gid: unsafe { libc::getegid() },
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn resize(&mut self, file: u64, length: u64) -> Option<()> {
        self.files.get_mut(&file)?.resize(usize::try_from(length).ok()?, 0);
        self.log.push(Event::Length { file, length });
        Some(())
    }
}

impl Filesystem for Recorder {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        match state.names.get(name).and_then(|&file| state.attributes(file)) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().attributes(file.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        file: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        if let Some(length) = size {
            let _ = state.resize(file.0, length);
        }
        match state.attributes(file.0) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.strip_prefix(MARK)?.parse().ok());
        match number {
            Some(number) => {
                self.state().log.push(Event::Mark(number));
                reply.error(Errno::EEXIST);
            }
            None => reply.error(Errno::EPERM),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut state = self.state();
        let file = state.files.keys().last().map_or(INodeNo::ROOT.0 + 1, |last| last + 1);
        state.files.insert(file, Vec::new());
        state.names.insert(name.to_owned(), file);
        state.log.push(Event::Link { file, name: name.to_owned() });
        match state.attributes(file) {
            Some(attributes) => {
                let flags = FopenFlags::empty();
                reply.created(&TTL, &attributes, Generation(0), FileHandle(0), flags);
            }
            None => reply.error(Errno::EIO),
        }
    }

    fn link(&self, _: &Request, file: INodeNo, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut state = self.state();
        if state.names.contains_key(name) {
            return reply.error(Errno::EEXIST);
        }
        state.names.insert(name.to_owned(), file.0);
        state.log.push(Event::Link { file: file.0, name: name.to_owned() });
        match state.attributes(file.0) {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        match state.names.remove(name) {
            Some(_) => {
                state.log.push(Event::Unlink { name: name.to_owned() });
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.state().files.get(&file.0) {
            Some(bytes) => {
                let start = bytes.len().min(offset as usize);
                let end = bytes.len().min(start + size as usize);
                reply.data(&bytes[start..end]);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn write(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let Some(bytes) = state.files.get_mut(&file.0) else { return reply.error(Errno::ENOENT) };
        let end = offset as usize + data.len();
        let grows = end > bytes.len();
        if grows {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        if grows {
            state.log.push(Event::Length { file: file.0, length: end as u64 });
        }
        state.log.push(Event::Write { file: file.0, offset, data: data.to_vec() });
        reply.written(data.len() as u32); // The kernel writes at most 1 MiB at a time.
    }

    fn fallocate(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let mut state = self.state();
        let has = state.files.get(&file.0).map_or(0, |bytes| bytes.len() as u64);
        if offset + length > has {
            let _ = state.resize(file.0, offset + length);
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, file: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.state().log.push(Event::Sync { file: file.0 });
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.state().log.push(Event::SyncDirectory);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.state();
        for (number, (name, file)) in state.names.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*file), number as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(FREE_BLOCKS, FREE_BLOCKS, FREE_BLOCKS, 1000, 1000, 4096, 255, 4096);
    }
}
