//! Parses the body of a push into a [`ContentBuilder`], piece by piece. The header `Content-Type`
//! selects Prometheus' text format, OpenMetrics, or protobuf. Like in Pushgateway, one syntax error
//! refuses the whole push.

use quipu_wire::remote::exposition::text::{
    Item, Options, Stream, TextFormat, TextLineError, TextReader,
};
use quipu_wire::remote::exposition::{self, Families, FamilyError};

use super::builder::{ContentBuilder, PushError};
use super::content::Content;
use quipu_client::media::Media;

/// A parser of a body. Pass all pieces to [`Parser::push`], and then call [`Parser::finish`].
pub(super) struct Parser(ParserState);

enum ParserState {
    Text(Box<(Stream, Families)>, TextFormat),
    /// The bytes of an incomplete family, and their offset in the body.
    Protobuf(Vec<u8>, usize),
    Done,
}

impl Parser {
    /// Creates a parser for a content type. Any type except OpenMetrics and protobuf selects the
    /// text format.
    pub(super) fn new(media: Media<'_>) -> Self {
        let text = |format| {
            let families = Families::new(format, exposition::Limits::default());
            ParserState::Text(Box::new((Stream::new(options(format)), families)), format)
        };
        let state = if media.is("application/vnd.google.protobuf")
            && media.parameter("proto") == Some("io.prometheus.client.MetricFamily")
            && media.parameter("encoding") == Some("delimited")
        {
            ParserState::Protobuf(Vec::new(), 0)
        } else if media.is("application/openmetrics-text") {
            text(TextFormat::OpenMetrics)
        } else {
            text(TextFormat::Prometheus)
        };
        Self(state)
    }

    /// Returns whether the body is in Prometheus' format, the only one whose forms are cached.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.0, ParserState::Text(_, TextFormat::Prometheus))
    }

    /// Parses the next piece of the body.
    ///
    /// # Errors
    /// Returns [`PushError::Malformed`] for an unreadable body.
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        builder: &mut ContentBuilder,
    ) -> Result<(), PushError> {
        match &mut self.0 {
            ParserState::Text(state, format) => {
                let (stream, families) = &mut **state;
                let mut lines = Lines { families, builder, format: *format, fault: None };
                stream.push(piece, |item| lines.take(item));
                lines.end()
            }
            ParserState::Protobuf(rest, offset) => {
                rest.extend_from_slice(piece);
                let end = complete(rest);
                read_protobuf(&rest[..end], *offset, builder)?;
                *offset += end;
                rest.drain(..end);
                Ok(())
            }
            ParserState::Done => Ok(()),
        }
    }

    /// Parses the last line and the last family, after all pieces.
    ///
    /// # Errors
    /// Returns [`PushError::Malformed`] for an unreadable body.
    pub(super) fn finish(&mut self, builder: &mut ContentBuilder) -> Result<(), PushError> {
        match std::mem::replace(&mut self.0, ParserState::Done) {
            ParserState::Text(state, format) => {
                let (stream, mut families) = *state;
                let mut lines = Lines { families: &mut families, builder, format, fault: None };
                stream.finish(|item| lines.take(item));
                lines.finish()
            }
            // We parse the rest, because it is not empty if the body was truncated.
            ParserState::Protobuf(rest, offset) => read_protobuf(&rest, offset, builder),
            ParserState::Done => Ok(()),
        }
    }
}

/// Parses a whole body in the text format. If `is_numbered`, the values of its samples are replaced
/// by 1, 2, 3, ...
///
/// # Errors
/// Returns a [`PushError`] for an invalid body.
pub(super) fn read_text(
    body: &[u8],
    builder: &mut ContentBuilder,
    is_numbered: bool,
) -> Result<Content, PushError> {
    let format = TextFormat::Prometheus;
    let mut reader = TextReader::new(body, options(format));
    let families = &mut Families::new(format, exposition::Limits::default());
    let mut lines = Lines { families, builder, format, fault: None };
    let mut number = 0.0;
    while let Some(mut item) = reader.next() {
        if is_numbered && let Ok(Item::Sample(sample)) = &mut item {
            number += 1.0;
            sample.value = number;
        }
        lines.take(item);
    }
    lines.finish()?;
    builder.finish()
}

fn options(format: TextFormat) -> Options {
    Options::new(format).max_line(MAX_LINE)
}

/// Parses families. `offset` is the position of the first one in the body, for error messages.
fn read_protobuf(
    bytes: &[u8],
    offset: usize,
    builder: &mut ContentBuilder,
) -> Result<(), PushError> {
    let mut fault = None;
    let read = exposition::read_families(bytes, exposition::Limits::default(), |family| {
        if fault.is_none() {
            fault = builder.add(family, false).err();
        }
    });
    read.map_err(|error| {
        PushError::Malformed(format!("after {offset} bytes of the body: {error}"))
    })?;
    fault.map_or(Ok(()), Err)
}

/// Collects lines into families, up to the first error.
struct Lines<'a> {
    families: &'a mut Families,
    builder: &'a mut ContentBuilder,
    format: TextFormat,
    fault: Option<PushError>,
}

impl Lines<'_> {
    fn take(&mut self, item: Result<Item<'_, '_>, TextLineError>) {
        if self.fault.is_some() {
            return;
        }
        let item = match item {
            Ok(item) => item,
            Err(error) => {
                let detail = format!("text format parsing error in {error}");
                self.fault = Some(PushError::Malformed(detail));
                return;
            }
        };
        let Self { families, builder, format, .. } = self;
        let is_openmetrics = *format == TextFormat::OpenMetrics;
        let mut fault = None;
        let pushed =
            families.push(&item, |family| fault = builder.add(family, is_openmetrics).err());
        self.fault = fault;
        let Err(error) = pushed else { return };
        let name = match &item {
            Item::Help { name, .. } | Item::Type { name, .. } | Item::Unit { name, .. } => *name,
            Item::Sample(sample) => sample.name,
            _ => return,
        };
        let name = name.to_cow();
        if error == FamilyError::Duplicate && matches!(item, Item::Sample(_)) {
            self.builder.note_duplicate(&name);
        } else {
            let detail = format!("text format parsing error in a line of {name:?}: {error}");
            self.fault.get_or_insert(PushError::Malformed(detail));
        }
    }

    fn end(self) -> Result<(), PushError> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Adds the last family, too.
    fn finish(mut self) -> Result<(), PushError> {
        let Self { families, builder, format, fault } = &mut self;
        let is_openmetrics = *format == TextFormat::OpenMetrics;
        families.finish(|family| {
            if fault.is_none() {
                *fault = builder.add(family, is_openmetrics).err();
            }
        });
        self.end()
    }
}

/// Returns the number of leading bytes that are complete families. Returns all bytes if a length is
/// impossible, because the parser then reports the error.
fn complete(bytes: &[u8]) -> usize {
    let mut end = 0;
    loop {
        let rest = &bytes[end..];
        let mut length = 0_u64;
        let mut used = None;
        for (at, byte) in rest.iter().take(9).enumerate() {
            length |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                used = Some(at + 1);
                break;
            }
        }
        let Some(used) = used else {
            return if rest.len() < 9 { end } else { bytes.len() };
        };
        let next = usize::try_from(length).ok().and_then(|length| length.checked_add(used));
        match next {
            Some(next) if next <= rest.len() => end += next,
            Some(next) if next <= MAX_FAMILY => return end,
            _ => return bytes.len(),
        }
    }
}

/// The maximum size of a protobuf family in bytes.
const MAX_FAMILY: usize = 64 << 20;
/// The maximum length of a line in bytes.
const MAX_LINE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use quipu::intake::Limits;

    use super::super::builder::Kind;
    use super::super::packed::unpack;
    use super::super::path::Grouping;
    use super::*;

    fn read(content_type: &str, body: &[u8]) -> Result<Content, PushError> {
        let grouping = Grouping::parse("job/a/zone/z").unwrap();
        let mut builder = ContentBuilder::new(grouping, &Limits::default());
        let mut parser = Parser::new(Media::new(content_type));
        for piece in body.chunks(7) {
            parser.push(piece, &mut builder)?;
        }
        parser.finish(&mut builder)?;
        builder.finish()
    }

    fn series(content: &Content, name: &str) -> Vec<Vec<(String, String)>> {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let family = content.families.get(name).unwrap();
        family.series.iter().map(|labels| unpack(labels).map(owned).collect()).collect()
    }

    fn given(content: &Content, name: &str, at: usize) -> String {
        let before = content.families.iter().take_while(|family| *family.name != *name);
        let first: usize = before.map(|family| family.series.len()).sum();
        let (Content { values, .. }, family) = (content, content.families.get(name).unwrap());
        values
            .with_input_value(family.kind, &values.series[first + at], |given| format!("{given:?}"))
    }

    #[test]
    fn grouping_labels_replace_labels_of_the_series() {
        let text = b"# TYPE x counter\n# HELP x Help.\nx{job=\"b\",zone=\"y\",a=\"1\"} 2\nx 3\ny 4";
        let content = read("text/plain; version=0.0.4", text).unwrap();
        assert_eq!(series(&content, "x"), [vec![("a".into(), "1".into())], vec![]]);
        let x = content.families.get("x").unwrap();
        assert_eq!((x.kind, &*x.help), (Kind::Counter, "Help."));
        assert_eq!(given(&content, "x", 0), "Counter(2.0)");
        assert_eq!(given(&content, "y", 0), "Unknown(4.0)");
        let twice = read("", b"x{job=\"b\"} 1\nx{job=\"c\"} 1\n").unwrap_err();
        assert!(matches!(&twice, PushError::Inconsistent(_)), "{twice:?}");
        assert!(twice.to_string().contains("collected before"), "{twice}");
    }

    #[test]
    fn histograms_and_summaries_are_complete() {
        let text = b"# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 5\nh_sum 7\n\
            h_count 5\n# TYPE i histogram\ni_bucket{le=\"1\"} 2\ni_count 3\n\
            # TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 2\ns_count 3\n";
        let content = read("text/plain", text).unwrap();
        let expected = "Histogram { buckets: [(1.0, 2.0), (inf, 3.0)], sum: 7.0 }";
        assert_eq!(given(&content, "h", 0), expected);
        let expected = "Histogram { buckets: [(1.0, 2.0), (inf, 1.0)], sum: 0.0 }";
        assert_eq!(given(&content, "i", 0), expected);
        let expected = "Summary { quantiles: [(0.5, 1.0)], count: 3.0, sum: 2.0 }";
        assert_eq!(given(&content, "s", 0), expected);
        let falls = b"# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\n";
        assert!(matches!(read("", falls), Err(PushError::Inconsistent(_))));
    }

    #[test]
    fn openmetrics_names_get_their_suffixes() {
        let text = b"# TYPE hits counter\nhits_total 1\nhits_created 12\n\
            # TYPE build info\nbuild_info{v=\"1\"} 1\n# EOF\n";
        let content = read("application/openmetrics-text; version=1.0.0", text).unwrap();
        let names: Vec<_> = content.families.iter().map(|family| &*family.name).collect();
        assert_eq!(names, ["hits_total", "build_info"]);
        assert_eq!(content.values.series[0].start.unwrap().as_nanos(), 12_000_000_000);
    }

    #[test]
    fn protobuf_is_read_by_its_content_type() {
        let body = b"\x15\x0a\x04hits\x18\x00\x22\x0b\x1a\x09\x09\0\0\0\0\0\0\x1c\x40";
        let content_type = "application/vnd.google.protobuf; \
            proto=io.prometheus.client.MetricFamily; encoding=delimited";
        let twice: Vec<u8> = [&body[..], &body[..]].concat();
        let content = read(content_type, body).unwrap();
        assert_eq!(given(&content, "hits", 0), "Counter(7.0)");
        assert!(read(content_type, &twice).is_err());
        assert!(read(content_type, &body[..9]).is_err());
        assert!(read("text/plain", body).is_err());
    }

    #[test]
    fn one_fault_refuses_the_whole_push() {
        for (text, part) in [
            ("x 1\ny\n", "line 2"),
            ("x 1 123\n", "timestamps"),
            ("x 1\nx 2\n", "collected before"),
            ("# TYPE x counter\nx -1\n", "cannot be taken"),
            ("x{__a=\"1\"} 1\n", "reserved"),
            ("# TYPE x counter\n# TYPE x gauge\nx 1\n", "\"x\""),
            ("# TYPE h histogram\nh 1\n", "\"h\""),
            ("# TYPE h histogram\nh_count 1\ny 1\nh 1\n", "come together"),
        ] {
            let fault = read("text/plain", text.as_bytes()).unwrap_err().to_string();
            assert!(fault.contains(part), "{text:?}: {fault}");
        }
        assert!(read("application/openmetrics-text", b"x 1\n").is_err());
        assert_eq!(read("", b"").unwrap().families.len(), 0);
        let parts = read("", b"push_time_seconds 1\nx 1\ny 2\nx{a=\"1\"} 3\n").unwrap();
        assert_eq!(parts.families.len(), 3);
        assert_eq!([0, 1].map(|at| given(&parts, "x", at)), ["Unknown(1.0)", "Unknown(3.0)"]);
        assert_eq!(given(&parts, "y", 0), "Unknown(2.0)");
    }

    #[test]
    fn damaged_bodies_are_refused_or_read() {
        let text = "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\",a=\"\\n\"} 2\nh_sum 7\nx{b=\"1\"} 2\n\
            # TYPE s summary\ns{quantile=\"0.5\"} 1\ns_count 3\n# EOF\n";
        let protobuf = b"\x15\x0a\x04hits\x18\x00\x22\x0b\x1a\x09\x09\0\0\0\0\0\0\x1c\x40";
        let protobuf = [&protobuf[..], &protobuf[..]].concat();
        let of_protobuf = "application/vnd.google.protobuf; \
            proto=io.prometheus.client.MetricFamily; encoding=delimited";
        let bodies = [
            ("", text.as_bytes()),
            ("application/openmetrics-text", text.as_bytes()),
            (of_protobuf, &protobuf),
        ];
        for (content_type, body) in bodies {
            for end in 0..body.len() {
                let _ = read(content_type, &body[..end]);
                for byte in [0, b'\n', b'"', b'{', b' ', 0x7f, 0x80, 0xff] {
                    let mut body = body.to_vec();
                    body[end] = byte;
                    let _ = read(content_type, &body);
                }
            }
        }
    }

    #[test]
    fn a_long_body_is_read_in_pieces() {
        let lines: String = (0..5000).map(|n| format!("x{{n=\"{n}\"}} {n}\n")).collect();
        assert_eq!(read("", lines.as_bytes()).unwrap().families.len(), 5000);
    }
}
