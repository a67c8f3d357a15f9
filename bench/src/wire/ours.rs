//! quipu's formats: single messages, and streams in their own framing.

use quipu_arena::Arena;
use quipu_wire::{
    Decoder, Encoder, Format, Framing, Kind, Message, Metric, Quipu, StreamSeries, StreamWriter,
};
use std::marker::PhantomData;

use super::contender::{Block, Codec, Kept, Shape, Stream, kind_of, subject_of};
use super::sink::Sink;

/// A format of quipu, for single messages.
pub(super) struct Ours<F> {
    /// The arena for values, which is reset after each message.
    arena: Arena,
    format: PhantomData<F>,
}

impl<F> Default for Ours<F> {
    fn default() -> Self {
        Ours { arena: Arena::with_capacity(4096), format: PhantomData }
    }
}

impl<F: Format, S: Shape> Codec<S> for Ours<F> {
    fn subject() -> String {
        subject_of::<F>()
    }

    type Message = S::Of<'static>;
    type Kept = Kept;

    fn message(message: S::Of<'static>) -> S::Of<'static> {
        message
    }

    #[inline(always)]
    fn marshal<'b>(&'b mut self, message: &S::Of<'static>, out: &'b mut Vec<u8>) -> &'b [u8] {
        message.encode::<F>(out).expect("the format has a form for the message");
        out
    }

    #[inline(always)]
    fn unmarshal(&mut self, input: &[u8], kept: &mut Kept) {
        let mut guard = self.arena.guard();
        let message = <S::Of<'_> as Metric<'_>>::decode::<F>(input, &guard.scope());
        S::keep(&message.expect("the input is a message"), kept);
        guard.reset();
    }

    fn look(kept: &Kept, sink: &mut impl Sink) {
        sink.message(S::kept(kept).into());
    }

    #[inline(always)]
    fn borrow(&mut self, input: &[u8], sink: &mut impl Sink) {
        let mut guard = self.arena.guard();
        let message = <S::Of<'_> as Metric<'_>>::decode::<F>(input, &guard.scope());
        sink.message(message.expect("the input is a message").into());
    }
}

/// A format of quipu, for streams.
pub(super) struct OurStream<F: Format> {
    encoder: Encoder<F>,
    decoder: Decoder<F>,
    arena: Arena,
}

impl<F: Format> OurStream<F> {
    pub(super) fn new(kind: Kind) -> Self {
        OurStream {
            encoder: Encoder::new(Framing::Own),
            decoder: Decoder::new(kind, Framing::Own),
            arena: Arena::with_capacity(4096),
        }
    }
}

impl<F: Format> Stream for OurStream<F> {
    type Messages<'m> = Vec<Message<'m>>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<Message<'m>> {
        block.messages.clone()
    }

    fn write(&mut self, messages: &Vec<Message<'_>>, out: &mut Vec<u8>) {
        for message in messages {
            self.encoder.append(message, out).expect("the format has a form for the message");
        }
        self.encoder.flush(out);
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        self.decoder.push(input);
        let read = self.decoder.for_each(&mut self.arena, |message| sink.message(message));
        read.expect("the input is a stream of messages");
    }
}

/// quipu's own format, for streams from a sender that keeps the series of its ids. These are looked
/// up before the clock starts, once each.
#[derive(Default)]
pub(super) struct BySeries {
    writer: StreamWriter,
    /// The series by the number of the id.
    series: Vec<Option<StreamSeries>>,
    reader: Option<OurStream<Quipu>>,
}

impl BySeries {
    /// Returns the contender's name in the labels.
    pub(super) fn subject() -> String {
        format!("{} (series)", subject_of::<Quipu>())
    }

    fn series(&mut self, number: u32, metric: &Message<'_>) -> StreamSeries {
        let number = number as usize;
        if self.series.len() <= number {
            self.series.resize(number + 1, None);
        }
        *self.series[number].get_or_insert_with(|| {
            self.writer.series(metric.kind(), metric.id()).expect("the id is short")
        })
    }
}

impl Stream for BySeries {
    type Messages<'m> = Vec<(StreamSeries, Message<'m>)>;

    fn prepare<'m>(&mut self, block: &Block<'m>) -> Vec<(StreamSeries, Message<'m>)> {
        let kind = kind_of(&block.messages);
        self.reader.get_or_insert_with(|| OurStream::new(kind));
        let numbered = block.numbers.iter().zip(&block.messages);
        let metrics = numbered.map(|(number, message)| {
            let metric = match *message {
                Message::MetricUnion(union) => union.to_metric(),
                metric => Some(metric),
            };
            let metric = metric.expect("a stream has unions of one metric each");
            (self.series(*number, &metric), metric)
        });
        metrics.collect()
    }

    fn write(&mut self, messages: &Vec<(StreamSeries, Message<'_>)>, out: &mut Vec<u8>) {
        for (series, message) in messages {
            let written = match message {
                Message::Counter(counter) => self.writer.counter(*series, counter.value, out),
                Message::BatchTimer(timer) => self.writer.batch_timer(*series, timer.values, out),
                Message::Gauge(gauge) => self.writer.gauge(*series, gauge.value, out),
                Message::MetricUnion(_) => unreachable!("a metric is not a union"),
            };
            written.expect("the series is known");
        }
        self.writer.flush(out);
    }

    fn read(&mut self, input: &[u8], sink: &mut impl Sink) {
        if let Some(reader) = &mut self.reader {
            reader.read(input, sink);
        }
    }
}
