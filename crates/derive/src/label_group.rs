//! `#[derive(LabelGroup)]`: a struct whose fields are labels, or other groups of labels.

use std::collections::HashMap;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, GenericParam, Lifetime, Type, parse_quote};

use crate::attributes::{assertion, each, krate, name_of, named_fields, text};

/// A field: a label, or the labels of another group.
struct Part<'i> {
    ident: syn::Ident,
    ty: &'i Type,
    /// The label's name; `None` for a group.
    name: Option<String>,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let fields =
        named_fields(input, "LabelGroup", "structs with named fields, each of them a label")?;
    let mut path = None;
    each(&input.attrs, "label", "crate", |meta| {
        let known = meta.path.is_ident("crate");
        if known {
            path = Some(meta.value()?.parse()?);
        }
        Ok(known)
    })?;
    let krate = krate(path);
    let mut seen = HashMap::new();
    let mut parts = Vec::new();
    let mut checks = Vec::new();
    for field in fields {
        let (ident, mut name) = name_of(field);
        let mut span = ident.span();
        let mut is_group = false;
        each(&field.attrs, "label", "rename, flatten", |meta| {
            if meta.path.is_ident("rename") {
                let renamed = text(meta)?;
                (name, span) = (renamed.value(), renamed.span());
            } else if meta.path.is_ident("flatten") {
                is_group = true;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        if is_group {
            parts.push(Part { ident, ty: &field.ty, name: None });
            continue;
        }
        checks.push(assertion(&krate, "assert_label", &name, span));
        if let Some(other) = seen.insert(name.clone(), ident.clone()) {
            let reason =
                format!("duplicate label {name:?}: the field {other} already has this label");
            return Err(Error::new(span, reason));
        }
        parts.push(Part { ident, ty: &field.ty, name: Some(name) });
    }
    let group = implement(input, &parts, &krate)?;
    Ok(quote!(#(#checks)* #group))
}

fn implement(
    input: &DeriveInput,
    parts: &[Part<'_>],
    krate: &TokenStream,
) -> Result<TokenStream, Error> {
    let ident = &input.ident;
    let mut generics = input.generics.clone();
    let predicates = &mut generics.make_where_clause().predicates;
    // Without type parameters, omit the bounds, because their errors would point at the struct
    // instead of the field.
    let has_types = input.generics.type_params().next().is_some();
    if has_types {
        for part in parts {
            let ty = part.ty;
            predicates.push(match part.name {
                Some(_) => parse_quote!(#ty: #krate::LabelValue),
                None => parse_quote!(#ty: #krate::LabelGroup),
            });
        }
        // The identity of a group is 'static.
        for parameter in input.generics.type_params() {
            let ident = &parameter.ident;
            predicates.push(parse_quote!(#ident: 'static));
        }
    }
    let (generics, arguments, bounds) = generics.split_for_impl();
    // `Identity`: this type with 'static for all lifetimes.
    let identity = input.generics.params.iter().map(|parameter| match parameter {
        GenericParam::Lifetime(_) => {
            let forever = Lifetime::new("'static", proc_macro2::Span::call_site());
            quote!(#forever)
        }
        GenericParam::Type(parameter) => {
            let ident = &parameter.ident;
            quote!(#ident)
        }
        GenericParam::Const(parameter) => {
            let ident = &parameter.ident;
            quote!(#ident)
        }
    });
    let identity = quote!(#ident<#(#identity),*>);
    let lists = parts.iter().map(|part| {
        let ty = part.ty;
        match &part.name {
            Some(name) => quote! {
                &[#krate::snapshot::Label::from_values(
                    #name,
                    <#ty as #krate::LabelValue>::VALUES,
                )]
            },
            None => quote!(<#ty as #krate::LabelGroup>::LABELS),
        }
    });
    let lists: Vec<_> = lists.collect();
    let encodes = parts.iter().map(|part| {
        let field = &part.ident;
        match &part.name {
            Some(_) => quote!(#krate::LabelValue::encode(&self.#field, writer);),
            None => quote!(#krate::LabelGroup::encode(&self.#field, writer);),
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #generics #krate::LabelGroup for #ident #arguments #bounds {
            type Identity = #identity;

            const LABELS: &'static [#krate::snapshot::Label<'static>] =
                #krate::__private::ConcatenatedLabels::new(&[#(#lists),*]).labels();

            #[inline]
            fn encode(&self, writer: &mut #krate::label::LabelWriter<'_>) {
                #(#encodes)*
            }
        }
    })
}
