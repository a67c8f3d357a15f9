//! The receive loop of a UDP or unix datagram listener. One system call (`recvmmsg`) receives many
//! packets, because a call per packet would limit the rate.

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use quipu::intake::Intake;
use tracing::{error, warn};

use super::Protocol;
use super::metrics::ListenerMetrics;
use super::receiver::{Reader, Receiver, Sender};
use super::sockets::{Socket, Transport, kernel_drops};
use super::stop::Stop;
use quipu_process::{address, memory};

/// Receives and handles packets until the stop, and then the remaining packets in the socket's
/// buffer.
pub(super) fn run<R: Reader>(
    socket: &Socket,
    stop: &Stop,
    receiver: &mut Receiver<R>,
    protocol: Protocol,
    room: PacketMemory,
) {
    let Protocol { name, .. } = protocol;
    let mut batch = Batch::new(room);
    let mut drops = Drops::new(socket);
    let naps = naps(socket.transport);
    let mut stops_by = None;
    loop {
        let received = match batch.receive(&socket.descriptor) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                error!(%error, address = socket.address, "receiving {name} fails; trying again");
                thread::sleep(PAUSE_AFTER_ERROR);
                0
            }
        };
        for packet in 0..received {
            match batch.packet(packet) {
                Packet::Whole(bytes, source) => receiver.packet(bytes, &source.or(socket)),
                Packet::TooLong(source) => receiver.packet_too_long(&source.or(socket)),
            }
        }
        receiver.flush();
        drops.check(socket, receiver.metrics(), protocol, received);
        if stop.is_asked() {
            // We limit the time for the remaining packets, because clients can continue to send.
            let by = *stops_by.get_or_insert_with(|| Instant::now() + LAST_READS);
            if received == 0 || Instant::now() > by {
                return;
            }
        } else if received == 0 {
            if !stop.wait_for(&socket.descriptor, Some(REST)) {
                batch.free();
                stop.wait_for(&socket.descriptor, None);
            }
        } else if naps && received < FEW {
            thread::sleep(NAP);
        }
    }
}

/// Returns whether to sleep for [`NAP`] after a call that received only [`FEW`] packets.
///
/// Without naps, a call receives one or two packets below saturation, and pays a wake-up for them:
/// 1.4 us a packet, mostly in the kernel. With naps after fewer than 32 packets, a call receives
/// about 60, and a packet costs 0.44 us, at 640,000 packets a second and without loss.
///
/// The receive buffer must hold the packets of the nap and of the time until the thread runs again.
/// For example, a buffer of 8 MiB holds 16 ms of these packets, but the kernel's default of 208 KiB
/// holds only 0.4 ms, which is less than a nap. Unix sockets hold `net.unix.max_dgram_qlen` packets
/// (10), regardless of their buffer size.
fn naps(transport: Transport) -> bool {
    matches!(transport, Transport::Udp(buffer) if buffer / SMALL_PACKET >= PACKETS_FOR_NAPS)
}

/// The memory that the kernel charges for a packet of a line or two, in bytes.
const SMALL_PACKET: usize = 832;
/// The number of packets that a buffer must hold for naps: 3 ms at the maximum rate that one core
/// can send.
const PACKETS_FOR_NAPS: usize = 2_000;
/// The duration of a nap.
const NAP: Duration = Duration::from_micros(500);
/// A call that receives fewer packets than this is followed by a nap.
const FEW: usize = 32;

/// The idle time after which a listener frees its memory for packets. Freeing and touching this
/// memory again takes some microseconds.
const REST: Duration = Duration::from_millis(100);
/// The pause after a failed call, because the next call would probably fail too.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// The maximum time for the remaining packets when the daemon stops.
const LAST_READS: Duration = Duration::from_millis(500);

/// Tracks the number of packets that the kernel dropped at a socket.
struct Drops {
    seen: u32,
    looked: Instant,
    warned: Option<Instant>,
    batches: u32,
}

impl Drops {
    fn new(socket: &Socket) -> Self {
        let seen = kernel_drops(&socket.descriptor).unwrap_or(0);
        Self { seen, looked: Instant::now(), warned: None, batches: 0 }
    }

    /// Reads the kernel's count when no packet was received, and about every 100 ms under constant
    /// load.
    fn check(
        &mut self,
        socket: &Socket,
        metrics: &ListenerMetrics,
        Protocol { name, flag }: Protocol,
        received: usize,
    ) {
        self.batches += 1;
        if received > 0 && self.batches < BATCHES_PER_LOOK {
            return;
        }
        self.batches = 0;
        let now = Instant::now();
        if received > 0 && now - self.looked < TIME_PER_LOOK {
            return;
        }
        self.looked = now;
        let Some(count) = kernel_drops(&socket.descriptor) else { return };
        let new = count.wrapping_sub(mem::replace(&mut self.seen, count));
        if new == 0 {
            return;
        }
        metrics.kernel_drops.inc_by(u64::from(new));
        if self.warned.is_none_or(|before| now - before > TIME_PER_WARNING) {
            self.warned = Some(now);
            warn!(
                address = socket.address,
                packets = new,
                "the kernel dropped packets of {name}: raise --{flag}-receive-buffer, or send \
                 several lines in a packet"
            );
        }
    }
}

/// The number of calls between two checks of the clock under load.
const BATCHES_PER_LOOK: u32 = 64;
/// The minimum time between two reads of the kernel's count under load.
const TIME_PER_LOOK: Duration = Duration::from_millis(100);
/// The minimum time between two warnings about dropped packets.
const TIME_PER_WARNING: Duration = Duration::from_secs(60);

/// The buffers for the packets of one `recvmmsg` call.
struct Batch {
    memory: Box<[u8]>,
    headers: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
    /// The addresses of the senders. An IPv4 address is read from the bytes of the IPv6 flow
    /// information, because both address types use the same offset.
    sources: Box<[libc::sockaddr_in6]>,
}

enum Packet<'a> {
    Whole(&'a [u8], Source),
    /// A packet that does not fit into its buffer.
    TooLong(Source),
}

/// The IP address of a sender, if it is known.
#[derive(Clone, Copy)]
struct Source(Option<Ipv6Addr>);

/// A sender for log messages. If it has no address, the listener is named instead.
struct NamedSource<'a>(Source, &'a Socket);

/// The memory for a batch. It is allocated before the thread starts, because the thread could not
/// report a failure.
pub(super) struct PacketMemory(Box<[u8]>);

impl PacketMemory {
    /// Allocates the memory.
    ///
    /// # Errors
    /// Fails if there is not enough memory or address space.
    pub(super) fn take() -> io::Result<Self> {
        if !memory::has_room(STRIDE * PACKETS) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // The system zeroes a page when it is first touched, so a small packet costs one page.
        Ok(Self(vec![0; STRIDE * PACKETS].into()))
    }
}

impl Batch {
    fn new(room: PacketMemory) -> Self {
        // SAFETY: These are structures of the C library that allow all zeros: null pointers,
        // lengths of zero, and the unspecified address family.
        let (part, header, source) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Self {
            memory: room.0,
            headers: vec![header; PACKETS].into(),
            parts: vec![part; PACKETS].into(),
            sources: vec![source; PACKETS].into(),
        }
    }

    /// Returns the touched pages to the system until the next call. The address range stays
    /// reserved, because otherwise other threads could use it up, and the daemon could no longer
    /// receive.
    fn free(&mut self) {
        let page = rustix::param::page_size();
        let pages = whole_pages(self.memory.as_ptr().addr(), self.memory.len(), page);
        let pages = &mut self.memory[pages];
        // SAFETY: These are whole pages within exclusively borrowed, private and anonymous memory:
        // each of their bytes becomes zero, which is a valid byte. The kernel rounds the length up
        // to whole pages, which makes no difference.
        let freed =
            unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), libc::MADV_DONTNEED) };
        debug_assert_eq!(freed, 0);
    }

    /// Receives the available packets. Returns their number.
    fn receive(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        let rooms = self.memory.chunks_exact_mut(STRIDE);
        let addresses = self.parts.iter_mut().zip(&mut self.sources);
        for ((header, room), (part, source)) in self.headers.iter_mut().zip(rooms).zip(addresses) {
            part.iov_base = room.as_mut_ptr().cast();
            part.iov_len = PACKET_BYTES;
            header.msg_hdr.msg_iov = ptr::from_mut(part);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = ptr::from_mut(source).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        }
        // SAFETY: The descriptor is open for as long as `socket` is borrowed. Each header has one
        // part, of `PACKET_BYTES` bytes within its own stride of `memory`, and a source; all of
        // them live in boxes of `self`, which is borrowed exclusively during the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                PACKETS as libc::c_uint,
                // The C libraries disagree on the sign of the flags.
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Returns a packet of the last call, by its index.
    fn packet(&self, index: usize) -> Packet<'_> {
        let header = &self.headers[index];
        let source = Source::from_address(&self.sources[index], header.msg_hdr.msg_namelen);
        let begin = index * STRIDE;
        let length = header.msg_len as usize;
        match self.memory.get(begin..begin + length) {
            Some(bytes) if header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0 => {
                Packet::Whole(bytes, source)
            }
            _ => Packet::TooLong(source),
        }
    }
}

/// Returns the range of whole pages in a buffer with this address and length. The page size is a
/// power of two: 4, 16 or 64 KiB on common systems.
fn whole_pages(address: usize, length: usize, page: usize) -> Range<usize> {
    let begin = address.next_multiple_of(page) - address;
    let end = (address + length) / page * page;
    if begin < length && begin + address < end { begin..end - address } else { 0..0 }
}

impl Source {
    fn from_address(address: &libc::sockaddr_in6, length: libc::socklen_t) -> Self {
        Self(match libc::c_int::from(address.sin6_family) {
            // Most unix sockets of senders are unnamed.
            _ if (length as usize) < size_of::<libc::sockaddr_in>() => None,
            libc::AF_INET => {
                Some(Ipv4Addr::from(u32::from_be(address.sin6_flowinfo)).to_ipv6_mapped())
            }
            libc::AF_INET6 => Some(Ipv6Addr::from(address.sin6_addr.s6_addr)),
            _ => None,
        })
    }

    fn or(self, socket: &Socket) -> NamedSource<'_> {
        NamedSource(self, socket)
    }
}

impl Sender for NamedSource<'_> {
    fn name_to(&self, intake: &mut Intake) {
        match self.0.0 {
            Some(address) => {
                intake.set_source(&address::Source::Client(address::identity(address.into())));
            }
            None => intake.set_source(&address::Source::Listener(&self.1.address)),
        }
    }
}

impl std::fmt::Display for NamedSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.0 {
            Some(address) => write!(f, "{}", address::identity(address.into())),
            None => f.write_str(&self.1.address),
        }
    }
}

/// The maximum number of packets per call.
const PACKETS: usize = 64;
/// The size of the buffer for a packet. The longest UDP packet has 65,507 bytes.
const PACKET_BYTES: usize = 65_536;
/// The distance between the buffers of two packets. This is not a multiple of a page, because the
/// first bytes of all packets would then share the same cache sets, which hold 8 to 16 lines.
const STRIDE: usize = PACKET_BYTES + 1_408;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_batch_receives_after_it_was_freed() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let receiver = OwnedFd::from(receiver);
        let mut batch = Batch::new(PacketMemory::take().unwrap());
        let lines = b"x:1|c\n".repeat(4096);
        for _ in 0..2 {
            sender.send(&lines).unwrap();
            assert_eq!(batch.receive(&receiver).unwrap(), 1);
            let packet = batch.packet(0);
            assert!(matches!(packet, Packet::Whole(bytes, Source(None)) if bytes == lines));
            batch.free();
            // The memory can begin within a page.
            let page = rustix::param::page_size();
            assert!(batch.memory[page..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn no_page_that_is_freed_reaches_beyond_the_memory() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for address in [1 << 20, (1 << 20) + 16, (1 << 20) + 4096, (2 << 20) - 16] {
                for length in [0, 1, page - 1, page, 2 * page, STRIDE, STRIDE * PACKETS] {
                    let pages = whole_pages(address, length, page);
                    let context = format!("{length} bytes at {address:#x} in pages of {page}");
                    assert!(pages.end <= length, "{context}: {pages:?}");
                    assert_eq!(pages.len() % page, 0, "{context}: {pages:?}");
                    // Less than a page remains at each end.
                    assert!(
                        pages.is_empty() || (address + pages.start).is_multiple_of(page),
                        "{context}"
                    );
                    assert!(length - pages.len() < 2 * page, "{context}: {pages:?}");
                }
            }
        }
    }
}
