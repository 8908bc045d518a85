//! The backends and fences that a configuration names, each with its secrets or why they are not there.
//!
//! Invariant: a secret that is missing costs no other its URL.

use fencepost_core::BackendUrl;

use crate::finding::ConfigError;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::search::Surroundings;
use crate::template::{Role, Template};

/// A backend or a fence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Place {
    /// Whether it is a fence.
    pub is_fence: bool,
    /// How it is written, without a password.
    pub written: String,
    /// Its kind, where that is no secret.
    pub kind: Option<&'static str>,
    /// Its URL with the secrets filled in, or which of them is not there.
    pub url: Result<BackendUrl, ConfigError>,
}

impl Policy {
    /// What a rule uses: its backend, and then its fences.
    pub fn places_of(&self, rule: &Rule) -> Vec<Place> {
        self.templates_of(rule).map(|template| self.place_of(template)).collect()
    }

    /// The backends and fences that no rule uses, in the order of their names.
    pub fn spare_places(&self) -> Vec<Place> {
        let content = self.content();
        let is_used = |template: &&Template| {
            let mut used = self.rules().iter().flat_map(|rule| self.templates_of(rule));
            used.any(|used| used.span == template.span)
        };
        let named = content.backends.values().chain(content.fences.values());
        let spare = named.map(toml::Spanned::get_ref).filter(|template| !is_used(template));
        spare.map(|template| self.place_of(template)).collect()
    }

    fn templates_of<'a>(&'a self, rule: &'a Rule) -> impl Iterator<Item = &'a Template> {
        std::iter::once(self.template(rule)).chain(&rule.fences)
    }

    fn place_of(&self, template: &Template) -> Place {
        let url = template.fill(self.source(), &Surroundings::of_process());
        let outline = template.outline().and_then(Result::ok);
        Place {
            is_fence: template.role() == Role::Fence,
            written: template.to_string(),
            kind: outline.map(|url| url.kind()),
            url: url.map_err(ConfigError::of),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &str = "[backends.a]\nurl = \"redis://h:${FENCEPOST_TEST_UNSET}\"\n[backends.b]\nurl = \"file:/b\"\n\
         [backends.spare]\nurl = \"postgres://u:${FENCEPOST_TEST_UNSET}@h/x\"\n[fences.f]\nurl = \"file:/f\"\n\
         [fences.idle]\nurl = \"file:/idle\"\n[[locks]]\nmatch = \"a\"\nbackend = \"a\"\nfence = [\"f\"]\n\
         [[locks]]\nmatch = \"b\"\nbackend = \"b\"\n";

    #[test]
    fn missing_secret_costs_no_other_place_its_url() {
        let policy = Policy::parse(Path::new("x.toml"), TEXT).unwrap();
        let seen = |place: &Place| (place.is_fence, place.written.clone(), place.kind, place.url.is_ok());
        let of_a: Vec<_> = policy.places_of(&policy.rules()[0]).iter().map(seen).collect();
        let written = "redis://h:${FENCEPOST_TEST_UNSET}".to_owned();
        assert_eq!(
            of_a,
            [(false, written, Some("redis"), false), (true, "file:/f".to_owned(), Some("file"), true)]
        );
        assert_eq!(policy.places_of(&policy.rules()[1]).iter().map(seen).collect::<Vec<_>>().len(), 1);
        let spare: Vec<_> = policy.spare_places().iter().map(seen).collect();
        let postgres = "postgres://u:${FENCEPOST_TEST_UNSET}@h/x".to_owned();
        let idle = (true, "file:/idle".to_owned(), Some("file"), true);
        assert_eq!(spare, [(false, postgres, Some("postgres"), false), idle]);
    }
}
