//! One file a format; its dialects, the ways in which several libraries write it, share the file.

use crate::any::AnyFormat;

macro_rules! formats {
    ($($feature:literal: $module:ident { $($format:ident),* };)*) => {
        $(
            #[cfg(feature = $feature)]
            mod $module;
            #[cfg(feature = $feature)]
            pub use $module::{$($format),*};
        )*

        /// Every format of this build.
        pub(crate) const ALL: &[AnyFormat] = &[
            #[cfg(feature = "quipu")]
            AnyFormat::of::<crate::quipu::Quipu>(),
            #[cfg(feature = "quipu")]
            AnyFormat::of::<crate::quipu::QuipuCompact>(),
            $($(#[cfg(feature = $feature)] AnyFormat::of::<$format>(),)*)*
        ];
    };
}

formats! {
    "colfer": colfer { Colfer };
    "gencode": gencode { Gencode };
    "msgpack": msgpack { VmihailencoMsgpack, TinylibMsgp, UgorjiMsgpack };
    "protobuf": protobuf { Protobuf, GogoProtobuf, ProtobufViaGogo, DedisProtobuf };
    "thrift": thrift { Thrift, ThriftCompact };
    "xdr": xdr { Xdr };
}
