//! `#[timed]`: a function whose duration is observed in a histogram.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, ItemFn, LitStr, Path, ReturnType, Token};

use crate::attributes::krate;

/// The arguments of the attribute.
pub(crate) struct Arguments {
    name: LitStr,
    help: LitStr,
    /// The settings and labels of the histogram, each after a comma.
    rest: TokenStream,
    /// The path of the crate `quipu`.
    krate: Option<Path>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        let missing = |what: &str| {
            format!("{what}: write #[timed(\"job_duration_seconds\", \"Duration of a job.\")]")
        };
        let text = |what: &str| {
            input.parse::<LitStr>().map_err(|error| Error::new(error.span(), missing(what)))
        };
        let name = text("the histogram has no name")?;
        let comma = input.parse::<Option<Token![,]>>()?;
        if comma.is_none() {
            return Err(Error::new(name.span(), missing("the histogram has no help")));
        }
        let help = text("the histogram has no help")?;
        let mut arguments = Self { name, help, rest: TokenStream::new(), krate: None };
        let mut has_labels = false;
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let argument = if input.peek(LitStr) {
                has_labels = true;
                let label: LitStr = input.parse()?;
                input.parse::<Token![=>]>()?;
                let value: Expr = input.parse()?;
                quote!(, #label => #value)
            } else if input.peek(Token![crate]) {
                input.parse::<Token![crate]>()?;
                input.parse::<Token![=]>()?;
                arguments.krate = Some(input.parse()?);
                continue;
            } else {
                let setting: Ident = input.parse()?;
                if has_labels {
                    return Err(Error::new(setting.span(), "write settings before the labels"));
                }
                if input.parse::<Option<Token![=]>>()?.is_some() {
                    let value: Expr = input.parse()?;
                    quote!(, #setting = #value)
                } else {
                    quote!(, #setting)
                }
            };
            arguments.rest.extend(argument);
        }
        Ok(arguments)
    }
}

pub(crate) fn expand(arguments: Arguments, mut function: ItemFn) -> Result<TokenStream, Error> {
    let signature = &function.sig;
    if let Some(token) = signature.constness {
        let reason = "a const fn cannot be timed, because it may run at compile time";
        return Err(Error::new(token.span(), reason));
    }
    if signature.asyncness.is_none()
        && let ReturnType::Type(_, output) = &signature.output
        && let Some(span) = future(output.to_token_stream())
    {
        let reason = "this function returns a future, so only its creation would be timed: write \
                      an async fn, or use Histogram::time_future";
        return Err(Error::new(span, reason));
    }
    let Arguments { name, help, rest, krate: path } = arguments;
    let krate = krate(path);
    // The body cannot see the variable, because of its hygiene.
    let timer = Ident::new("timer", Span::mixed_site());
    let body = &mut function.block;
    // The braces come from the macro, or the lint `unused_braces` warns about a body that is one
    // expression.
    let braces = body.brace_token.span.join().resolved_at(Span::mixed_site());
    body.brace_token = syn::token::Brace(braces);
    function.block = syn::parse_quote!({
        let #timer = #krate::histogram!(#name, #help #rest).start_timer();
        #body
    });
    Ok(quote!(#function))
}

/// Returns where a type names a future: `impl Future`, `BoxFuture`.
fn future(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident.to_string().ends_with("Future") => Some(ident.span()),
        TokenTree::Group(group) => future(group.stream()),
        _ => None,
    })
}
