//! Parses the query of a request: parameters encoded as `application/x-www-form-urlencoded`.
//!
//! A parameter that is not UTF-8 is refused. We don't use the crate `form_urlencoded`, because it
//! would replace the invalid bytes and silently change the value.

use percent_encoding::percent_decode_str;

use super::Request;

/// The decoded parameters of a query, in order.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query with any parameters.
    ///
    /// # Errors
    /// Fails for a parameter that is not UTF-8.
    pub fn from_request(request: &Request) -> Result<Self, String> {
        Self::parse(request.query().unwrap_or_default())
    }

    /// Parses a query that may only contain these parameters.
    ///
    /// # Errors
    /// Fails for a parameter that is unknown or not UTF-8.
    pub fn only(request: &Request, known: &[&str]) -> Result<Self, String> {
        let query = Self::from_request(request)?;
        match query.0.iter().find(|(name, _)| !known.contains(&&**name)) {
            Some((name, _)) => {
                let known = known.join(", ");
                Err(format!("unknown parameter {name:?}; this route takes {known}"))
            }
            None => Ok(query),
        }
    }

    /// Returns the first value of a parameter.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Returns the names and values of all parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    fn parse(query: &str) -> Result<Self, String> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| -> Result<String, String> {
                let text = text.replace('+', " ");
                let text = percent_decode_str(&text).decode_utf8().map_err(|_| {
                    format!(
                        "the parameter {name:?} is not UTF-8; percent-encode the bytes of a UTF-8 \
                         text"
                    )
                })?;
                Ok(text.into_owned())
            };
            Ok((decode(name)?, decode(value)?))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let query = Query::parse("name%5b%5D=a+b&&x=%2b=%26&name[]=%C3%a9&bare&=v").unwrap();
        let expected =
            [("name[]", "a b"), ("x", "+=&"), ("name[]", "\u{e9}"), ("bare", ""), ("", "v")];
        assert_eq!(query.iter().collect::<Vec<_>>(), expected);
        assert_eq!((query.one("name[]"), query.one("y")), (Some("a b"), None));
        for query in ["a=%ff", "b=1&a=%c3"] {
            let fault = Query::parse(query).unwrap_err();
            assert!(fault.starts_with("the parameter \"a\" is not UTF-8"), "{fault}");
        }
    }
}
