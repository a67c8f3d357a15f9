//! The formats, one file each. If several libraries write a format differently, each has a separate
//! dialect.

use crate::any::AnyFormat;

// These are outside of the macro, because rustfmt finds modules only here.
#[cfg(feature = "bitcode")]
mod bitcode;
#[cfg(feature = "bson")]
mod bson;
#[cfg(feature = "capnp")]
mod capnp;
#[cfg(feature = "colfer")]
mod colfer;
#[cfg(feature = "flatbuffers")]
mod flatbuffers;
#[cfg(feature = "gencode")]
mod gencode;
#[cfg(feature = "gob")]
mod gob;
#[cfg(feature = "hprose")]
mod hprose;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "msgpack")]
mod msgpack;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(feature = "protobuf")]
mod protobuf;
#[cfg(feature = "rkyv")]
mod rkyv;
#[cfg(feature = "sereal")]
mod sereal;
#[cfg(feature = "statsd")]
mod statsd;
#[cfg(feature = "thrift")]
mod thrift;
#[cfg(feature = "tsv")]
mod tsv;
#[cfg(feature = "xdr")]
mod xdr;

macro_rules! formats {
    ($($feature:literal: $module:path { $($format:ident),* };)*) => {
        $(
            #[cfg(feature = $feature)]
            pub use $module::{$($format),*};
        )*

        /// Every format of this build.
        pub(crate) const ALL: &[AnyFormat] = &[
            $($(#[cfg(feature = $feature)] AnyFormat::for_format::<$format>(),)*)*
        ];
    };
}

formats! {
    "quipu": crate::quipu { Quipu, QuipuCompact };
    "msgpack": msgpack { VmihailencoMsgpack, TinylibMsgp, UgorjiMsgpack };
    "flatbuffers": flatbuffers { Flatbuffers };
    "protobuf": protobuf { Protobuf, GogoProtobuf, ProtobufViaGogo, DedisProtobuf };
    "capnp": capnp { Capnp, CapnpPacked };
    "thrift": thrift { Thrift, ThriftCompact };
    "gob": gob { Gob };
    "json": json { Json, Easyjson };
    "bson": bson { Bson };
    "xdr": xdr { Xdr };
    "sereal": sereal { Sereal };
    "gencode": gencode { Gencode };
    "colfer": colfer { Colfer };
    "hprose": hprose { Hprose };
    "postcard": postcard { Postcard };
    "bitcode": bitcode { Bitcode };
    "rkyv": rkyv { Rkyv };
    "statsd": statsd { Statsd, DogStatsd };
    "tsv": tsv { Tsv };
}
