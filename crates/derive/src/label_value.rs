//! `#[derive(LabelValue)]`: an enum whose variants are values, or a struct around one value.

use std::collections::HashMap;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, parse_quote};

use crate::attributes::{each, krate, text, wrong_shape};
use crate::case::Case;

const WANTED: &str = "enums whose variants have no fields, and structs with one unnamed field";

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let mut case = Case::Snake;
    let mut path = None;
    each(&input.attrs, "label", "rename_all, crate", |meta| {
        if meta.path.is_ident("rename_all") {
            case = Case::parse(&text(meta)?)?;
        } else if meta.path.is_ident("crate") {
            path = Some(meta.value()?.parse()?);
        } else {
            return Ok(false);
        }
        Ok(true)
    })?;
    let krate = krate(path);
    match &input.data {
        Data::Enum(data) => variants(input, data, case, &krate),
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => newtype(input, &krate),
            _ => Err(wrong_shape(input, "LabelValue", WANTED)),
        },
        Data::Union(_) => Err(wrong_shape(input, "LabelValue", WANTED)),
    }
}

fn variants(
    input: &DeriveInput,
    data: &DataEnum,
    case: Case,
    krate: &TokenStream,
) -> Result<TokenStream, Error> {
    if data.variants.is_empty() {
        return Err(Error::new(input.ident.span(), "a label value needs a variant: add one"));
    }
    let mut seen = HashMap::new();
    let mut values = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            let reason = format!("the variant has fields, but LabelValue is for {WANTED}");
            return Err(Error::new_spanned(variant, reason));
        }
        let mut value = case.apply(&variant.ident.to_string());
        let mut span = variant.ident.span();
        each(&variant.attrs, "label", "rename", |meta| {
            if !meta.path.is_ident("rename") {
                return Ok(false);
            }
            let renamed = text(meta)?;
            (value, span) = (renamed.value(), renamed.span());
            Ok(true)
        })?;
        if let Some(other) = seen.insert(value.clone(), &variant.ident) {
            let reason = format!(
                "{value:?} is already the value of {other}: rename one of them with \
                 #[label(rename = \"...\")]"
            );
            return Err(Error::new(span, reason));
        }
        values.push(value);
    }
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    // An enum cannot contain 2^32 variants.
    let count = values.len() as u32;
    let idents: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let indices: Vec<u32> = (0..count).collect();
    Ok(quote! {
        #[automatically_derived]
        impl #generics #krate::LabelValue for #name #arguments #bounds {
            const VALUES: ::core::option::Option<&'static [&'static str]> =
                ::core::option::Option::Some(&[#(#values),*]);

            #[inline]
            fn encode(&self, writer: &mut #krate::label::LabelWriter<'_>) {
                let index = match self { #(Self::#idents => #indices,)* };
                writer.index_within(index, #count);
            }

            #[inline]
            fn index(&self) -> ::core::option::Option<u32> {
                ::core::option::Option::Some(match self { #(Self::#idents => #indices,)* })
            }
        }
    })
}

/// Handles a struct with one unnamed field: a label value like this field.
fn newtype(input: &DeriveInput, krate: &TokenStream) -> Result<TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(wrong_shape(input, "LabelValue", WANTED));
    };
    let inner = data.fields.iter().map(|field| &field.ty).next();
    let name = &input.ident;
    let mut generics = input.generics.clone();
    generics.make_where_clause().predicates.push(parse_quote!(#inner: #krate::LabelValue));
    let (generics, arguments, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics #krate::LabelValue for #name #arguments #bounds {
            const VALUES: ::core::option::Option<&'static [&'static str]> =
                <#inner as #krate::LabelValue>::VALUES;

            #[inline]
            fn encode(&self, writer: &mut #krate::label::LabelWriter<'_>) {
                #krate::LabelValue::encode(&self.0, writer);
            }

            #[inline]
            fn index(&self) -> ::core::option::Option<u32> {
                #krate::LabelValue::index(&self.0)
            }
        }
    })
}
