//! Datagrams of StatsD lines, and the sender that paces them.
//!
//! A line is `checkout.requests_042:1|c|#service:svc-017,route:/api/v1/r00123,code:203`, 74 bytes.
//! The lines of counters and timers are *countable*, because a subject's exposition shows how many
//! arrived: a counter grows by 1, and a timer contains one more observation. A lost gauge is not
//! visible there.

use std::io::{IoSlice, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::series::{Kind, Random, Series};
use crate::{Error, Result};

/// The maximum length of a datagram: the payload of one Ethernet packet.
const DATAGRAM: usize = 1432;

/// The maximum number of datagrams in one system call.
const BATCH: usize = 64;

/// The number of lines that are packed into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// 19 or 20 lines, which fill the datagram.
    Packed,
    /// One line.
    Single,
}

/// Datagrams that are ready to be sent.
pub(super) struct Packets {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

struct Packet {
    range: Range<usize>,
    lines: u64,
    countable: u64,
}

impl Packets {
    /// Makes this number of lines, of random series.
    pub(super) fn random(series: usize, lines: usize, form: Form) -> Packets {
        let mut random = Random::new();
        let drawn: Vec<Series> = (0..lines).map(|_| Series(random.below(series))).collect();
        Packets::of(drawn.into_iter(), form)
    }

    /// Makes one line of each series, packed.
    pub(super) fn each(series: usize) -> Packets {
        Packets::of((0..series).map(Series), Form::Packed)
    }

    fn of(series: impl Iterator<Item = Series>, form: Form) -> Packets {
        let mut all = Packets { bytes: Vec::new(), packets: Vec::new() };
        let mut line = Vec::new();
        for series in series {
            line.clear();
            write_line(series, &mut line);
            let countable = u64::from(series.kind() != Kind::Gauge);
            match all.packets.last_mut() {
                Some(packet)
                    if form == Form::Packed && packet.range.len() + 1 + line.len() <= DATAGRAM =>
                {
                    all.bytes.push(b'\n');
                    all.bytes.extend_from_slice(&line);
                    packet.range.end = all.bytes.len();
                    packet.lines += 1;
                    packet.countable += countable;
                }
                _ => {
                    let start = all.bytes.len();
                    all.bytes.extend_from_slice(&line);
                    let range = start..all.bytes.len();
                    all.packets.push(Packet { range, lines: 1, countable });
                }
            }
        }
        all
    }

    /// Returns the mean number of lines of a datagram.
    pub(super) fn lines_per_packet(&self) -> f64 {
        let lines: u64 = self.packets.iter().map(|packet| packet.lines).sum();
        lines as f64 / self.packets.len().max(1) as f64
    }

    fn len(&self) -> usize {
        self.packets.len()
    }
}

fn write_line(series: Series, line: &mut Vec<u8>) {
    let (what, value, kind) = match series.kind() {
        Kind::Counter => ("requests", 1, "c"),
        Kind::Gauge => ("level", series.0 % 1000, "g"),
        Kind::Timer => ("took", 1 + series.0 * 7 % 900, "ms"),
    };
    let (name, service, route) = (series.name(), series.service(), series.route());
    let code = series.code();
    // Writing to memory never fails.
    let _ = write!(
        line,
        "checkout.{what}_{name:03}:{value}|{kind}|#service:{service},route:{route},code:{code}"
    );
}

/// The lines and datagrams that were passed to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) lines: u64,
    pub(super) countable: u64,
    pub(super) elapsed: Duration,
}

/// A socket that sends to a subject.
pub(super) struct Sender {
    socket: UdpSocket,
    /// The datagram to continue with.
    next: usize,
}

impl Sender {
    pub(super) fn open(to: SocketAddr) -> Result<Sender> {
        let failed =
            |error: std::io::Error| Error::command(format!("send to {to}"), error.to_string());
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        socket.connect(to).map_err(failed)?;
        Ok(Sender { socket, next: 0 })
    }

    /// Sends at this rate of datagrams a second, for a time, or until `stop` is set or no process
    /// listens. This cycles through the datagrams, and continues where the previous call ended.
    pub(super) fn send_for(
        &mut self,
        packets: &Packets,
        rate: f64,
        time: Duration,
        stop: &AtomicBool,
    ) -> Sent {
        self.send(packets, rate, time, u64::MAX, stop)
    }

    /// Sends each datagram once.
    pub(super) fn send_all(&mut self, packets: &Packets, rate: f64) -> Sent {
        self.next = 0;
        let never = AtomicBool::new(false);
        self.send(packets, rate, Duration::MAX, packets.len() as u64, &never)
    }

    fn send(
        &mut self,
        packets: &Packets,
        rate: f64,
        time: Duration,
        limit: u64,
        stop: &AtomicBool,
    ) -> Sent {
        let mut sent = Sent::default();
        let started = Instant::now();
        while sent.packets < limit && !stop.load(Ordering::Relaxed) {
            sent.elapsed = started.elapsed();
            if sent.elapsed >= time {
                break;
            }
            let due = (sent.elapsed.as_secs_f64() * rate) as u64 + 1;
            let count = due.saturating_sub(sent.packets).min(limit - sent.packets);
            if count == 0 {
                // Leave a share of the core to the health check.
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            let from = self.next;
            let to = packets.len().min(from + (count as usize).min(BATCH));
            let Ok(count) = self.send_batch(packets, from..to) else { break };
            for packet in &packets.packets[from..from + count] {
                sent.packets += 1;
                sent.lines += packet.lines;
                sent.countable += packet.countable;
            }
            self.next = (from + count) % packets.len();
        }
        sent.elapsed = started.elapsed();
        sent
    }

    /// Sends some of the datagrams; returns their number.
    fn send_batch(&self, packets: &Packets, batch: Range<usize>) -> rustix::io::Result<usize> {
        let slices: Vec<[IoSlice<'_>; 1]> = packets.packets[batch]
            .iter()
            .map(|packet| [IoSlice::new(&packets.bytes[packet.range.clone()])])
            .collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<MMsgHdr<'_>> =
            slices.iter().zip(&mut controls).map(|(slice, c)| MMsgHdr::new(slice, c)).collect();
        sendmmsg(&self.socket, &mut messages, SendFlags::empty())
    }
}

/// Returns the datagrams that the kernel dropped at a UDP socket: the last column of
/// `/proc/net/udp`.
pub(super) fn kernel_drops(port: u16) -> u64 {
    let text = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    parse_drops(&text, port)
}

fn parse_drops(text: &str, port: u16) -> u64 {
    let suffix = format!(":{port:04X}");
    let drops = text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(1).filter(|address| address.ends_with(&suffix))?;
        fields.last()?.parse::<u64>().ok()
    });
    drops.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_that_of_the_documentation() {
        let mut line = Vec::new();
        write_line(Series(12_342), &mut line);
        let text = String::from_utf8(line).unwrap();
        assert_eq!(
            text,
            "checkout.requests_042:1|c|#service:svc-003,route:/api/v1/r00123,code:203"
        );
    }

    #[test]
    fn packets_hold_all_lines_and_no_more_than_fits() {
        let packets = Packets::each(1000);
        let lines: u64 = packets.packets.iter().map(|packet| packet.lines).sum();
        let countable: u64 = packets.packets.iter().map(|packet| packet.countable).sum();
        assert_eq!((lines, countable), (1000, 900));
        assert!(packets.packets.iter().all(|packet| packet.range.len() <= DATAGRAM));
        assert!((18.0..21.0).contains(&packets.lines_per_packet()));
        assert_eq!(Packets::random(1000, 50, Form::Single).len(), 50);
    }

    #[test]
    fn what_is_sent_is_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sender = Sender::open(receiver.local_addr().unwrap()).unwrap();
        let sent = sender.send_all(&Packets::each(100), 1e9);
        let mut lines = 0;
        let mut buffer = [0; 2048];
        for _ in 0..sent.packets {
            let length = receiver.recv(&mut buffer).unwrap();
            lines += buffer[..length].split(|byte| *byte == b'\n').count() as u64;
        }
        assert_eq!((lines, sent.lines, sent.countable), (100, 100, 90));
    }

    #[test]
    fn drops_are_those_of_the_port() {
        let text = "  sl  local_address rem_address   st drops\n\
                    1: 0100007F:23A5 00000000:0000 07 0 12\n\
                    2: 0100007F:23A6 00000000:0000 07 0 7\n";
        assert_eq!((parse_drops(text, 0x23a5), parse_drops(text, 1)), (12, 0));
    }
}
