//! What a file declares: names, functions with their length, and items for tests only.
//!
//! The bodies of macros are no syntax tree; there, functions are found by their tokens.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What one file declares.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    pub(super) names: Vec<Name>,
    pub(super) functions: Vec<Function>,
    pub(super) tests: Vec<RangeInclusive<usize>>,
}

/// A name that is the author's choice.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) line: usize,
    pub(super) is_function: bool,
}

impl Name {
    fn new(ident: &Ident, is_function: bool) -> Self {
        Self { text: ident.to_string(), line: ident.span().start().line, is_function }
    }
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// From the signature to the closing brace.
    pub(super) lines: RangeInclusive<usize>,
}

impl Function {
    pub(super) fn length(&self) -> usize {
        self.lines.end() + 1 - self.lines.start()
    }
}

impl Declarations {
    pub(super) fn of(file: &syn::File) -> Self {
        let mut declarations = Self::default();
        declarations.visit_file(file);
        declarations
    }

    fn name(&mut self, ident: &Ident) {
        self.names.push(Name::new(ident, false));
    }

    fn function_name(&mut self, ident: &Ident) {
        self.names.push(Name::new(ident, true));
    }

    fn attributes(&mut self, attributes: &[syn::Attribute], item: &impl Spanned) {
        if attributes.iter().any(is_for_tests) {
            self.tests.push(item.span().start().line..=item.span().end().line);
        }
    }

    fn function(&mut self, name: String, start: Span, end: Span) {
        self.functions.push(Function { name, lines: start.start().line..=end.end().line });
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        self.function(signature.ident.to_string(), signature.span(), block.brace_token.span.close());
    }

    fn functions_in(&mut self, stream: TokenStream) {
        let trees: Vec<TokenTree> = stream.into_iter().collect();
        for (index, tree) in trees.iter().enumerate() {
            match tree {
                TokenTree::Group(group) => self.functions_in(group.stream()),
                TokenTree::Ident(keyword) if keyword == "fn" => {
                    self.function_in(keyword, &trees[index + 1..]);
                }
                _ => {}
            }
        }
    }

    /// `rest` is what follows the keyword; the name may be a macro's own `$name`, and a function type has none.
    fn function_in(&mut self, keyword: &Ident, rest: &[TokenTree]) {
        let name = match rest {
            [TokenTree::Ident(ident), ..] => {
                self.function_name(ident);
                ident.to_string()
            }
            [TokenTree::Punct(dollar), TokenTree::Ident(ident), ..] if dollar.as_char() == '$' => {
                format!("${ident}")
            }
            _ => return,
        };
        let header =
            rest.iter().take_while(|tree| !matches!(tree, TokenTree::Punct(mark) if mark.as_char() == ';'));
        let body = header.filter_map(|tree| match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.span_close()),
            _ => None,
        });
        if let Some(end) = body.take(1).next() {
            self.function(name, keyword.span(), end);
        }
    }
}

impl<'ast> Visit<'ast> for Declarations {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.attributes(attributes(item), item);
        if let Some(ident) = ident(item) {
            self.name(ident);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function_name(&item.sig.ident);
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        // The names of an implementation are the trait's, which is checked where it is declared.
        if item.trait_.is_none() {
            for method in item.items.iter().filter_map(method) {
                self.function_name(&method.sig.ident);
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.attributes(&item.attrs, item);
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function_name(&item.sig.ident);
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.name(ident);
        }
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.name(&variant.ident);
        visit::visit_variant(self, variant);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.functions_in(called.tokens.clone());
    }
}

fn method(item: &syn::ImplItem) -> Option<&syn::ImplItemFn> {
    match item {
        syn::ImplItem::Fn(method) => Some(method),
        _ => None,
    }
}

/// The name of an item that is no function.
fn ident(item: &syn::Item) -> Option<&Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Mod(item) => Some(&item.ident),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]` or `#[test]`, also an executor's.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("cfg") {
        return attribute.parse_args::<Ident>().is_ok_and(|only| only == "test");
    }
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}
