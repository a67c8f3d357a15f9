//! One file a format; its dialects, the ways in which several libraries write it, share the file.

use crate::any::AnyFormat;

// Formatters look for modules here, and not within a macro.
#[cfg(feature = "colfer")]
mod colfer;
#[cfg(feature = "gencode")]
mod gencode;
#[cfg(feature = "msgpack")]
mod msgpack;
#[cfg(feature = "protobuf")]
mod protobuf;
#[cfg(feature = "thrift")]
mod thrift;
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
            $($(#[cfg(feature = $feature)] AnyFormat::of::<$format>(),)*)*
        ];
    };
}

formats! {
    "quipu": crate::quipu { Quipu, QuipuCompact };
    "msgpack": msgpack { VmihailencoMsgpack, TinylibMsgp, UgorjiMsgpack };
    "protobuf": protobuf { Protobuf, GogoProtobuf, ProtobufViaGogo, DedisProtobuf };
    "thrift": thrift { Thrift, ThriftCompact };
    "xdr": xdr { Xdr };
    "gencode": gencode { Gencode };
    "colfer": colfer { Colfer };
}
