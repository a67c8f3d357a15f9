//! `#[derive(Metrics)]`: a struct whose fields are metrics, or other groups of metrics.

use std::collections::HashMap;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::{DeriveInput, Error, Expr, Field, Ident, LitStr, Token};

use crate::attributes::{assertion, documentation, each, krate, name_of, named_fields, text};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let wanted = "structs with named fields, each of them an instrument, a family or a group";
    let fields = named_fields(input, "Metrics", wanted)?;
    let mut path = None;
    let mut prefix = None;
    each(&input.attrs, "metrics", "prefix, crate", |meta| {
        if meta.path.is_ident("crate") {
            path = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("prefix") {
            prefix = Some(text(meta)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    let krate = krate(path);
    let mut seen = HashMap::new();
    let mut checks = Vec::new();
    let fields = fields.iter().map(|field| match group(field)? {
        Some(group) => Ok(register_group(field, &group, &krate)),
        None => register_metric(field, &krate, &mut seen, &mut checks),
    });
    let fields: Vec<TokenStream> = fields.collect::<Result<_, Error>>()?;
    let ident = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let prefix = prefix.map(|prefix| quote!(let scope = &scope.prefix(#prefix);));
    Ok(quote! {
        #(#checks)*
        #[automatically_derived]
        impl #generics #krate::Metrics for #ident #arguments #bounds {
            fn register(
                scope: &#krate::Scope,
            ) -> ::core::result::Result<Self, #krate::Error> {
                #prefix
                ::core::result::Result::Ok(Self { #(#fields),* })
            }
        }
    })
}

/// The arguments of `#[metrics(flatten, ...)]` on a field.
struct Group {
    prefix: Option<LitStr>,
    labels: Vec<(Ident, LitStr)>,
}

fn group(field: &Field) -> Result<Option<Group>, Error> {
    let mut flatten = false;
    let mut group = Group { prefix: None, labels: Vec::new() };
    let known = "flatten, prefix, labels";
    each(&field.attrs, "metrics", known, |meta| {
        if meta.path.is_ident("flatten") {
            flatten = true;
        } else if meta.path.is_ident("prefix") {
            group.prefix = Some(text(meta)?);
        } else if meta.path.is_ident("labels") {
            meta.parse_nested_meta(|label| {
                let Some(name) = label.path.get_ident().cloned() else {
                    return Err(label.error("write each label as name = \"value\""));
                };
                group.labels.push((name, text(&label)?));
                Ok(())
            })?;
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    let attribute = field.attrs.iter().find(|attribute| attribute.path().is_ident("metrics"));
    match attribute {
        None => Ok(None),
        Some(_) if flatten => Ok(Some(group)),
        Some(attribute) => {
            let reason = "#[metrics(...)] on a field is for a group of metrics: add `flatten`, or \
                        use #[metric(...)] for a single metric";
            Err(Error::new_spanned(attribute, reason))
        }
    }
}

fn register_group(field: &Field, group: &Group, krate: &TokenStream) -> TokenStream {
    let (ident, ty) = (&field.ident, &field.ty);
    let prefix = group.prefix.as_ref().map(|prefix| quote!(.prefix(#prefix)));
    let labels = group.labels.iter().map(|(name, value)| {
        let name = name.to_string();
        quote!(.label(#name, #value))
    });
    quote! {
        #ident: <#ty as #krate::Metrics>::register(
            &::core::clone::Clone::clone(scope) #prefix #(#labels)*
        )?
    }
}

fn register_metric(
    field: &Field,
    krate: &TokenStream,
    seen: &mut HashMap<String, Ident>,
    checks: &mut Vec<TokenStream>,
) -> Result<TokenStream, Error> {
    let (ident, mut name) = name_of(field);
    let mut span = ident.span();
    let mut help = documentation(field);
    let mut unit = None;
    let mut calls = Vec::new();
    let known = "rename, help, or a setting of Description";
    each(&field.attrs, "metric", known, |meta| {
        if meta.path.is_ident("rename") {
            let renamed = text(meta)?;
            (name, span) = (renamed.value(), renamed.span());
        } else if meta.path.is_ident("help") {
            help = text(meta)?.value();
        } else {
            let Some(method) = meta.path.get_ident() else { return Ok(false) };
            checks.push(setting_check(krate, method));
            calls.push(call(method, meta, &mut unit)?);
        }
        Ok(true)
    })?;
    if help.is_empty() {
        let reason = format!(
            "the metric {name:?} has no help: write a doc comment, or #[metric(help = \"...\")]"
        );
        return Err(Error::new(ident.span(), reason));
    }
    if let Some(other) = seen.insert(name.clone(), ident.clone()) {
        let reason = format!("duplicate metric {name:?}: the field {other} already has this name");
        return Err(Error::new(span, reason));
    }
    checks.push(assertion(krate, "assert_metric", &name, span));
    let ty = &field.ty;
    Ok(quote! {
        #ident: <#ty as #krate::Register>::register(
            scope,
            #krate::Description::new(#name, #help) #(#calls)*
        )?
    })
}

/// Returns an item that refuses a method that is not a setting, because quipu defines the list of
/// settings.
fn setting_check(krate: &TokenStream, method: &Ident) -> TokenStream {
    // The path is imported, for the reason that `assertion` explains.
    quote_spanned! {method.span()=>
        const _: () = {
            use #krate::assert_field_setting;
            assert_field_setting!(#method);
        };
    }
}

/// Returns the call of a method of `Description`: `name = argument`, or `name` if there is no
/// argument.
fn call(
    method: &Ident,
    meta: &ParseNestedMeta<'_>,
    unit: &mut Option<Span>,
) -> Result<TokenStream, Error> {
    if method == "unit" && unit.replace(method.span()).is_some() {
        return Err(meta.error("the unit is given twice"));
    }
    if !meta.input.peek(Token![=]) {
        return Ok(quote!(.#method()));
    }
    let argument: Expr = meta.value()?.parse()?;
    Ok(quote!(.#method(#argument)))
}
