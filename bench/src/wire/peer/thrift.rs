//! [`thrift`](https://docs.rs/thrift): the binary protocol, with the calls that Thrift's compiler
//! generates. The messages that it reads own their data.

use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier,
    TOutputProtocol, TStructIdentifier, TType,
};

use super::{Library, codecs, messages};

messages! {
    #[derive(Default)]
    owned,
    id: [Vec<u8>],
    values: [Vec<f64>]
}

/// thrift.
#[derive(Default)]
pub(in super::super) struct Thrift;

impl Library for Thrift {
    const PACKAGE: &'static str = "thrift";
}

codecs!(Thrift, owned);

impl Thrift {
    #[inline(always)]
    fn write<'b>(&'b mut self, message: &impl Structure, out: &'b mut Vec<u8>) -> &'b [u8] {
        let mut to = TBinaryOutputProtocol::new(&mut *out, true);
        message.write(&mut to).expect("it can be written");
        out
    }

    #[inline(always)]
    fn read<M: Structure>(&mut self, input: &[u8]) -> M {
        let mut from = TBinaryInputProtocol::new(input, true);
        M::read(&mut from).expect("the input is a message")
    }
}

type Result<T> = std::result::Result<T, ::thrift::Error>;

/// The code that the compiler would generate for a message.
trait Structure: Default {
    const NAME: &'static str;

    fn write_fields(&self, to: &mut impl TOutputProtocol) -> Result<()>;

    /// Reads a field; returns false if the message does not contain it.
    fn read_field(&mut self, number: i16, from: &mut impl TInputProtocol) -> Result<bool>;

    fn write(&self, to: &mut impl TOutputProtocol) -> Result<()> {
        to.write_struct_begin(&TStructIdentifier::new(Self::NAME))?;
        self.write_fields(to)?;
        to.write_field_stop()?;
        to.write_struct_end()
    }

    fn read(from: &mut impl TInputProtocol) -> Result<Self> {
        let mut message = Self::default();
        from.read_struct_begin()?;
        loop {
            let field = from.read_field_begin()?;
            if field.field_type == TType::Stop {
                break;
            }
            if !message.read_field(field.id.unwrap_or(0), from)? {
                from.skip(field.field_type)?;
            }
            from.read_field_end()?;
        }
        from.read_struct_end()?;
        Ok(message)
    }
}

macro_rules! structure {
    ($name:ident { $($number:literal: $field:ident = $form:ident),* $(,)? }) => {
        impl Structure for owned::$name {
            const NAME: &'static str = stringify!($name);

            fn write_fields(&self, to: &mut impl TOutputProtocol) -> Result<()> {
                $(
                    let field = TFieldIdentifier::new(stringify!($field), $form::TYPE, $number);
                    to.write_field_begin(&field)?;
                    $form::write(&self.$field, to)?;
                    to.write_field_end()?;
                )*
                Ok(())
            }

            fn read_field(&mut self, number: i16, from: &mut impl TInputProtocol) -> Result<bool> {
                match number {
                    $($number => self.$field = $form::read(from)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

structure!(Counter { 1: id = bytes, 2: value = integer });
structure!(BatchTimer { 1: id = bytes, 2: values = list });
structure!(Gauge { 1: id = bytes, 2: value = double });
structure!(MetricUnion {
    1: metric_type = byte,
    2: id = bytes,
    3: counter = integer,
    4: timer = list,
    5: gauge = double,
});

macro_rules! form {
    (
        $name:ident, $type:ident, $value:ty, $given:ty,
        |$to:ident, $written:ident| $write:expr, |$from:ident| $read:expr
    ) => {
        mod $name {
            use super::*;

            pub(super) const TYPE: TType = TType::$type;

            pub(super) fn write($written: &$given, $to: &mut impl TOutputProtocol) -> Result<()> {
                $write
            }

            pub(super) fn read($from: &mut impl TInputProtocol) -> Result<$value> {
                $read
            }
        }
    };
}

form!(byte, I08, i8, i8, |to, value| to.write_i8(*value), |from| from.read_i8());
form!(integer, I64, i64, i64, |to, value| to.write_i64(*value), |from| from.read_i64());
form!(double, Double, f64, f64, |to, value| to.write_double(*value), |from| from.read_double());
form!(bytes, String, Vec<u8>, [u8], |to, value| to.write_bytes(value), |from| from.read_bytes());
form!(
    list,
    List,
    Vec<f64>,
    [f64],
    |to, values| {
        to.write_list_begin(&TListIdentifier::new(TType::Double, values.len() as i32))?;
        values.iter().try_for_each(|value| to.write_double(*value))?;
        to.write_list_end()
    },
    |from| {
        let list = from.read_list_begin()?;
        let mut values = Vec::with_capacity(list.size as usize);
        for _ in 0..list.size {
            values.push(from.read_double()?);
        }
        from.read_list_end()?;
        Ok(values)
    }
);
