//! The messages of a request, by the keys that they have in JSON.

/// A message.
#[derive(Debug, PartialEq)]
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Below 16, so that tags have one byte.
    pub(super) number: u8,
    pub(super) kind: Kind,
    pub(super) is_list: bool,
    pub(super) is_enum: bool,
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    Bool,
    /// An unsigned varint.
    Unsigned,
    /// A signed number as a varint of 64 bits.
    Int,
    /// A signed number of 32 bits, zigzag.
    Signed,
    /// 8 bytes, unsigned.
    Fixed,
    /// 8 bytes, signed.
    SignedFixed,
    Double,
    Hex,
    Base64,
    Message(&'static Message),
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

impl Kind {
    /// What a value must be.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Bool => "true or false",
            Kind::Unsigned | Kind::Fixed => "an integer from 0 to 2^64-1",
            Kind::Int | Kind::SignedFixed => "an integer of 64 bits",
            Kind::Signed => "an integer of 32 bits",
            Kind::Double => "a number",
            Kind::Hex => "hexadecimal digits",
            Kind::Base64 => "base64 with its padding",
            Kind::Message(_) => "an object",
        }
    }
}

const fn one(name: &'static str, number: u8, kind: Kind) -> Field {
    Field { name, number, kind, is_list: false, is_enum: false }
}

const fn list(name: &'static str, number: u8, kind: Kind) -> Field {
    Field { name, number, kind, is_list: true, is_enum: false }
}

const TEMPORALITY: Field =
    Field { is_enum: true, ..one("aggregationTemporality", 2, Kind::Unsigned) };

pub(super) static REQUEST: Message = Message {
    name: "ExportMetricsServiceRequest",
    fields: &[list("resourceMetrics", 1, Kind::Message(&RESOURCE_METRICS))],
};

static RESOURCE_METRICS: Message = Message {
    name: "ResourceMetrics",
    fields: &[
        one("resource", 1, Kind::Message(&RESOURCE)),
        list("scopeMetrics", 2, Kind::Message(&SCOPE_METRICS)),
        one("schemaUrl", 3, Kind::Text),
    ],
};

static RESOURCE: Message =
    Message { name: "Resource", fields: &[list("attributes", 1, Kind::Message(&KEY_VALUE))] };

static SCOPE_METRICS: Message = Message {
    name: "ScopeMetrics",
    fields: &[
        one("scope", 1, Kind::Message(&SCOPE)),
        list("metrics", 2, Kind::Message(&METRIC)),
        one("schemaUrl", 3, Kind::Text),
    ],
};

static SCOPE: Message = Message {
    name: "InstrumentationScope",
    fields: &[
        one("name", 1, Kind::Text),
        one("version", 2, Kind::Text),
        list("attributes", 3, Kind::Message(&KEY_VALUE)),
    ],
};

static METRIC: Message = Message {
    name: "Metric",
    fields: &[
        one("name", 1, Kind::Text),
        one("description", 2, Kind::Text),
        one("unit", 3, Kind::Text),
        one("gauge", 5, Kind::Message(&GAUGE)),
        one("sum", 7, Kind::Message(&SUM)),
        one("histogram", 9, Kind::Message(&HISTOGRAM)),
        one("exponentialHistogram", 10, Kind::Message(&EXPONENTIAL)),
        one("summary", 11, Kind::Message(&SUMMARY)),
    ],
};

static GAUGE: Message =
    Message { name: "Gauge", fields: &[list("dataPoints", 1, Kind::Message(&NUMBER_POINT))] };

static SUM: Message = Message {
    name: "Sum",
    fields: &[
        list("dataPoints", 1, Kind::Message(&NUMBER_POINT)),
        TEMPORALITY,
        one("isMonotonic", 3, Kind::Bool),
    ],
};

static HISTOGRAM: Message = Message {
    name: "Histogram",
    fields: &[list("dataPoints", 1, Kind::Message(&HISTOGRAM_POINT)), TEMPORALITY],
};

static EXPONENTIAL: Message = Message {
    name: "ExponentialHistogram",
    fields: &[list("dataPoints", 1, Kind::Message(&EXPONENTIAL_POINT)), TEMPORALITY],
};

static SUMMARY: Message =
    Message { name: "Summary", fields: &[list("dataPoints", 1, Kind::Message(&SUMMARY_POINT))] };

static NUMBER_POINT: Message = Message {
    name: "NumberDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, Kind::Fixed),
        one("timeUnixNano", 3, Kind::Fixed),
        one("asDouble", 4, Kind::Double),
        list("exemplars", 5, Kind::Message(&EXEMPLAR)),
        one("asInt", 6, Kind::SignedFixed),
        list("attributes", 7, Kind::Message(&KEY_VALUE)),
        one("flags", 8, Kind::Unsigned),
    ],
};

static HISTOGRAM_POINT: Message = Message {
    name: "HistogramDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, Kind::Fixed),
        one("timeUnixNano", 3, Kind::Fixed),
        one("count", 4, Kind::Fixed),
        one("sum", 5, Kind::Double),
        list("bucketCounts", 6, Kind::Fixed),
        list("explicitBounds", 7, Kind::Double),
        list("exemplars", 8, Kind::Message(&EXEMPLAR)),
        list("attributes", 9, Kind::Message(&KEY_VALUE)),
        one("flags", 10, Kind::Unsigned),
        one("min", 11, Kind::Double),
        one("max", 12, Kind::Double),
    ],
};

static EXPONENTIAL_POINT: Message = Message {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        list("attributes", 1, Kind::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, Kind::Fixed),
        one("timeUnixNano", 3, Kind::Fixed),
        one("count", 4, Kind::Fixed),
        one("sum", 5, Kind::Double),
        one("scale", 6, Kind::Signed),
        one("zeroCount", 7, Kind::Fixed),
        one("positive", 8, Kind::Message(&BUCKETS)),
        one("negative", 9, Kind::Message(&BUCKETS)),
        one("flags", 10, Kind::Unsigned),
        list("exemplars", 11, Kind::Message(&EXEMPLAR)),
        one("min", 12, Kind::Double),
        one("max", 13, Kind::Double),
        one("zeroThreshold", 14, Kind::Double),
    ],
};

static BUCKETS: Message = Message {
    name: "Buckets",
    fields: &[one("offset", 1, Kind::Signed), list("bucketCounts", 2, Kind::Unsigned)],
};

static SUMMARY_POINT: Message = Message {
    name: "SummaryDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, Kind::Fixed),
        one("timeUnixNano", 3, Kind::Fixed),
        one("count", 4, Kind::Fixed),
        one("sum", 5, Kind::Double),
        list("quantileValues", 6, Kind::Message(&QUANTILE)),
        list("attributes", 7, Kind::Message(&KEY_VALUE)),
        one("flags", 8, Kind::Unsigned),
    ],
};

static QUANTILE: Message = Message {
    name: "ValueAtQuantile",
    fields: &[one("quantile", 1, Kind::Double), one("value", 2, Kind::Double)],
};

static EXEMPLAR: Message = Message {
    name: "Exemplar",
    fields: &[
        one("timeUnixNano", 2, Kind::Fixed),
        one("asDouble", 3, Kind::Double),
        one("spanId", 4, Kind::Hex),
        one("traceId", 5, Kind::Hex),
        one("asInt", 6, Kind::SignedFixed),
        list("filteredAttributes", 7, Kind::Message(&KEY_VALUE)),
    ],
};

static KEY_VALUE: Message = Message {
    name: "KeyValue",
    fields: &[one("key", 1, Kind::Text), one("value", 2, Kind::Message(&ANY_VALUE))],
};

static ANY_VALUE: Message = Message {
    name: "AnyValue",
    fields: &[
        one("stringValue", 1, Kind::Text),
        one("boolValue", 2, Kind::Bool),
        one("intValue", 3, Kind::Int),
        one("doubleValue", 4, Kind::Double),
        one("arrayValue", 5, Kind::Message(&ARRAY)),
        one("kvlistValue", 6, Kind::Message(&KEY_VALUES)),
        one("bytesValue", 7, Kind::Base64),
    ],
};

static ARRAY: Message =
    Message { name: "ArrayValue", fields: &[list("values", 1, Kind::Message(&ANY_VALUE))] };

static KEY_VALUES: Message =
    Message { name: "KeyValueList", fields: &[list("values", 1, Kind::Message(&KEY_VALUE))] };
