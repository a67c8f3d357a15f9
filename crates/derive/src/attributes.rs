//! Parsing of attributes, doc comments and fields, shared by all derives.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitStr, Path};
use syn::{Expr, ExprLit, Field, Lit, Meta, Token, punctuated::Punctuated};

/// Calls `take` for each argument of the attributes of this name. If `take` returns false, the
/// argument is unknown, and the error lists the `known` ones.
pub(crate) fn each(
    attributes: &[Attribute],
    name: &str,
    known: &str,
    mut take: impl FnMut(&ParseNestedMeta<'_>) -> Result<bool, Error>,
) -> Result<(), Error> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(name)) {
        attribute.parse_nested_meta(|meta| {
            if take(&meta)? {
                Ok(())
            } else {
                Err(meta.error(format!("unknown argument of #[{name}(...)]: use {known}")))
            }
        })?;
    }
    Ok(())
}

/// Parses the string of `name = "..."`.
pub(crate) fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr, Error> {
    meta.value()?.parse()
}

/// Returns the path of the crate `quipu`.
pub(crate) fn krate(path: Option<Path>) -> TokenStream {
    path.map_or_else(|| quote!(::quipu), |path| quote!(#path))
}

/// Returns an item that checks `name` at compile time by a function of quipu, because quipu defines
/// the rules for names.
///
/// The path is imported, not called. Its tokens carry different spans, so the error of a call that
/// contains them would point at the derive instead of at `span`.
pub(crate) fn assertion(
    krate: &TokenStream,
    function: &str,
    name: &str,
    span: Span,
) -> TokenStream {
    let function = Ident::new(function, span);
    quote_spanned! {span=>
        const _: () = {
            use #krate::__private::#function;
            #function(#name)
        };
    }
}

/// Returns the first paragraph of a field's doc comment, on one line.
pub(crate) fn documentation(field: &Field) -> String {
    let lines = field.attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    // Only the first paragraph is the help, because further ones are for readers of the code.
    let paragraph = lines.split(|line| line.is_empty()).find(|part| !part.is_empty());
    paragraph.map(|lines| lines.join(" ")).unwrap_or_default()
}

/// Returns the named fields of a struct, or an error that explains the purpose of the derive.
pub(crate) fn named_fields<'i>(
    input: &'i DeriveInput,
    derive: &str,
    wanted: &str,
) -> Result<&'i Punctuated<Field, Token![,]>, Error> {
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => Ok(&fields.named),
            _ => Err(wrong_shape(input, derive, wanted)),
        },
        _ => Err(wrong_shape(input, derive, wanted)),
    }
}

pub(crate) fn wrong_shape(input: &DeriveInput, derive: &str, wanted: &str) -> Error {
    Error::new(input.ident.span(), format!("{derive} is for {wanted}"))
}

/// Returns the identifier of a named field, and its name without `r#`.
pub(crate) fn name_of(field: &Field) -> (Ident, String) {
    let ident = field.ident.clone().unwrap_or_else(|| Ident::new("_", Span::call_site()));
    let name = ident.to_string().trim_start_matches("r#").to_owned();
    (ident, name)
}
