//! The messages of a request, with the JSON names of their fields.

/// A message.
#[derive(Debug, PartialEq)]
pub(super) struct SchemaMessage {
    pub(super) name: &'static str,
    pub(super) fields: &'static [SchemaField],
}

/// A field of a message.
#[derive(Debug, PartialEq)]
pub(super) struct SchemaField {
    pub(super) name: &'static str,
    /// Below 16, because tags must fit into one byte.
    pub(super) number: u8,
    pub(super) kind: FieldType,
    pub(super) is_list: bool,
    pub(super) is_enum: bool,
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldType {
    Text,
    Bool,
    /// An unsigned varint.
    Unsigned,
    /// A signed number as a 64-bit varint.
    Int,
    /// A signed 32-bit number, zigzag-encoded.
    Signed,
    /// 8 bytes, unsigned.
    Fixed,
    /// 8 bytes, signed.
    SignedFixed,
    Double,
    Hex,
    Base64,
    Message(&'static SchemaMessage),
}

impl PartialEq for FieldType {
    fn eq(&self, other: &FieldType) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

impl FieldType {
    /// Describes the expected value, for errors.
    pub(super) fn expected(self) -> &'static str {
        match self {
            FieldType::Text => "a text",
            FieldType::Bool => "true or false",
            FieldType::Unsigned | FieldType::Fixed => "an integer from 0 to 2^64-1",
            FieldType::Int | FieldType::SignedFixed => "an integer of 64 bits",
            FieldType::Signed => "an integer of 32 bits",
            FieldType::Double => "a number",
            FieldType::Hex => "hexadecimal digits",
            FieldType::Base64 => "base64 with its padding",
            FieldType::Message(_) => "an object",
        }
    }
}

const fn one(name: &'static str, number: u8, kind: FieldType) -> SchemaField {
    SchemaField { name, number, kind, is_list: false, is_enum: false }
}

const fn list(name: &'static str, number: u8, kind: FieldType) -> SchemaField {
    SchemaField { name, number, kind, is_list: true, is_enum: false }
}

const TEMPORALITY: SchemaField =
    SchemaField { is_enum: true, ..one("aggregationTemporality", 2, FieldType::Unsigned) };

pub(super) static REQUEST: SchemaMessage = SchemaMessage {
    name: "ExportMetricsServiceRequest",
    fields: &[list("resourceMetrics", 1, FieldType::Message(&RESOURCE_METRICS))],
};

static RESOURCE_METRICS: SchemaMessage = SchemaMessage {
    name: "ResourceMetrics",
    fields: &[
        one("resource", 1, FieldType::Message(&RESOURCE)),
        list("scopeMetrics", 2, FieldType::Message(&SCOPE_METRICS)),
        one("schemaUrl", 3, FieldType::Text),
    ],
};

static RESOURCE: SchemaMessage = SchemaMessage {
    name: "Resource",
    fields: &[list("attributes", 1, FieldType::Message(&KEY_VALUE))],
};

static SCOPE_METRICS: SchemaMessage = SchemaMessage {
    name: "ScopeMetrics",
    fields: &[
        one("scope", 1, FieldType::Message(&SCOPE)),
        list("metrics", 2, FieldType::Message(&METRIC)),
        one("schemaUrl", 3, FieldType::Text),
    ],
};

static SCOPE: SchemaMessage = SchemaMessage {
    name: "InstrumentationScope",
    fields: &[
        one("name", 1, FieldType::Text),
        one("version", 2, FieldType::Text),
        list("attributes", 3, FieldType::Message(&KEY_VALUE)),
    ],
};

static METRIC: SchemaMessage = SchemaMessage {
    name: "Metric",
    fields: &[
        one("name", 1, FieldType::Text),
        one("description", 2, FieldType::Text),
        one("unit", 3, FieldType::Text),
        one("gauge", 5, FieldType::Message(&GAUGE)),
        one("sum", 7, FieldType::Message(&SUM)),
        one("histogram", 9, FieldType::Message(&HISTOGRAM)),
        one("exponentialHistogram", 10, FieldType::Message(&EXPONENTIAL)),
        one("summary", 11, FieldType::Message(&SUMMARY)),
    ],
};

static GAUGE: SchemaMessage = SchemaMessage {
    name: "Gauge",
    fields: &[list("dataPoints", 1, FieldType::Message(&NUMBER_POINT))],
};

static SUM: SchemaMessage = SchemaMessage {
    name: "Sum",
    fields: &[
        list("dataPoints", 1, FieldType::Message(&NUMBER_POINT)),
        TEMPORALITY,
        one("isMonotonic", 3, FieldType::Bool),
    ],
};

static HISTOGRAM: SchemaMessage = SchemaMessage {
    name: "Histogram",
    fields: &[list("dataPoints", 1, FieldType::Message(&HISTOGRAM_POINT)), TEMPORALITY],
};

static EXPONENTIAL: SchemaMessage = SchemaMessage {
    name: "ExponentialHistogram",
    fields: &[list("dataPoints", 1, FieldType::Message(&EXPONENTIAL_POINT)), TEMPORALITY],
};

static SUMMARY: SchemaMessage = SchemaMessage {
    name: "Summary",
    fields: &[list("dataPoints", 1, FieldType::Message(&SUMMARY_POINT))],
};

static NUMBER_POINT: SchemaMessage = SchemaMessage {
    name: "NumberDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, FieldType::Fixed),
        one("timeUnixNano", 3, FieldType::Fixed),
        one("asDouble", 4, FieldType::Double),
        list("exemplars", 5, FieldType::Message(&EXEMPLAR)),
        one("asInt", 6, FieldType::SignedFixed),
        list("attributes", 7, FieldType::Message(&KEY_VALUE)),
        one("flags", 8, FieldType::Unsigned),
    ],
};

static HISTOGRAM_POINT: SchemaMessage = SchemaMessage {
    name: "HistogramDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, FieldType::Fixed),
        one("timeUnixNano", 3, FieldType::Fixed),
        one("count", 4, FieldType::Fixed),
        one("sum", 5, FieldType::Double),
        list("bucketCounts", 6, FieldType::Fixed),
        list("explicitBounds", 7, FieldType::Double),
        list("exemplars", 8, FieldType::Message(&EXEMPLAR)),
        list("attributes", 9, FieldType::Message(&KEY_VALUE)),
        one("flags", 10, FieldType::Unsigned),
        one("min", 11, FieldType::Double),
        one("max", 12, FieldType::Double),
    ],
};

static EXPONENTIAL_POINT: SchemaMessage = SchemaMessage {
    name: "ExponentialHistogramDataPoint",
    fields: &[
        list("attributes", 1, FieldType::Message(&KEY_VALUE)),
        one("startTimeUnixNano", 2, FieldType::Fixed),
        one("timeUnixNano", 3, FieldType::Fixed),
        one("count", 4, FieldType::Fixed),
        one("sum", 5, FieldType::Double),
        one("scale", 6, FieldType::Signed),
        one("zeroCount", 7, FieldType::Fixed),
        one("positive", 8, FieldType::Message(&BUCKETS)),
        one("negative", 9, FieldType::Message(&BUCKETS)),
        one("flags", 10, FieldType::Unsigned),
        list("exemplars", 11, FieldType::Message(&EXEMPLAR)),
        one("min", 12, FieldType::Double),
        one("max", 13, FieldType::Double),
        one("zeroThreshold", 14, FieldType::Double),
    ],
};

static BUCKETS: SchemaMessage = SchemaMessage {
    name: "Buckets",
    fields: &[one("offset", 1, FieldType::Signed), list("bucketCounts", 2, FieldType::Unsigned)],
};

static SUMMARY_POINT: SchemaMessage = SchemaMessage {
    name: "SummaryDataPoint",
    fields: &[
        one("startTimeUnixNano", 2, FieldType::Fixed),
        one("timeUnixNano", 3, FieldType::Fixed),
        one("count", 4, FieldType::Fixed),
        one("sum", 5, FieldType::Double),
        list("quantileValues", 6, FieldType::Message(&QUANTILE)),
        list("attributes", 7, FieldType::Message(&KEY_VALUE)),
        one("flags", 8, FieldType::Unsigned),
    ],
};

static QUANTILE: SchemaMessage = SchemaMessage {
    name: "ValueAtQuantile",
    fields: &[one("quantile", 1, FieldType::Double), one("value", 2, FieldType::Double)],
};

static EXEMPLAR: SchemaMessage = SchemaMessage {
    name: "Exemplar",
    fields: &[
        one("timeUnixNano", 2, FieldType::Fixed),
        one("asDouble", 3, FieldType::Double),
        one("spanId", 4, FieldType::Hex),
        one("traceId", 5, FieldType::Hex),
        one("asInt", 6, FieldType::SignedFixed),
        list("filteredAttributes", 7, FieldType::Message(&KEY_VALUE)),
    ],
};

static KEY_VALUE: SchemaMessage = SchemaMessage {
    name: "KeyValue",
    fields: &[one("key", 1, FieldType::Text), one("value", 2, FieldType::Message(&ANY_VALUE))],
};

static ANY_VALUE: SchemaMessage = SchemaMessage {
    name: "AnyValue",
    fields: &[
        one("stringValue", 1, FieldType::Text),
        one("boolValue", 2, FieldType::Bool),
        one("intValue", 3, FieldType::Int),
        one("doubleValue", 4, FieldType::Double),
        one("arrayValue", 5, FieldType::Message(&ARRAY)),
        one("kvlistValue", 6, FieldType::Message(&KEY_VALUES)),
        one("bytesValue", 7, FieldType::Base64),
    ],
};

static ARRAY: SchemaMessage = SchemaMessage {
    name: "ArrayValue",
    fields: &[list("values", 1, FieldType::Message(&ANY_VALUE))],
};

static KEY_VALUES: SchemaMessage = SchemaMessage {
    name: "KeyValueList",
    fields: &[list("values", 1, FieldType::Message(&KEY_VALUE))],
};
