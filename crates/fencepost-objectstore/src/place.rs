//! Where the objects of a fence are, as a URL says it, and the client for that.
//!
//! Invariant: a URL has no secrets. Credentials come from the environment, where `from_env` of the client finds them.

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::{BackendUrl, Error, ErrorKind, Result};
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::transport::Transport;

/// A bucket, and what all keys in it begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    kind: &'static str,
    bucket: String,
    prefix: Path,
    endpoint: Option<String>,
    region: Option<String>,
    account: Option<String>,
    allow_http: bool,
    has_test_keys: bool,
}

impl Place {
    /// What a URL names.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no bucket, the prefix is no key, or an option is wrong.
    pub(crate) fn of(url: &BackendUrl) -> Result<Self> {
        url.accept_options(options(url.kind()))?;
        let body = url.body().strip_prefix("//").unwrap_or_default();
        let (bucket, prefix) = body.split_once('/').unwrap_or((body, ""));
        if bucket.contains(['@', ':']) {
            let what = "the bucket is followed by a slash, and credentials come from the environment";
            return Err(url.wrong(what).hint(CREDENTIALS));
        }
        if bucket.is_empty() || !bucket.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            let what = format!("{bucket:?} is no bucket");
            return Err(url.wrong(what).hint(format!("{}://bucket/prefix", url.scheme())));
        }
        let prefix =
            Path::parse(prefix).map_err(|_| url.wrong(format!("{prefix:?} is no prefix of keys")))?;
        let option = |name| url.option(name).map(ToOwned::to_owned);
        let endpoint = option("endpoint");
        if endpoint.as_deref().is_some_and(|endpoint| !is_endpoint(endpoint)) {
            return Err(url.wrong("the endpoint is not http://host:port or https://host:port"));
        }
        Ok(Self {
            kind: url.kind(),
            bucket: bucket.to_owned(),
            prefix,
            endpoint,
            region: option("region"),
            account: option("account"),
            allow_http: url.switch("allow_http", false)?,
            has_test_keys: url.switch("test_keys", false)?,
        })
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// As it is named in messages, without the prefix.
    pub(crate) fn bucket(&self) -> String {
        format!("{}://{}", self.kind, self.bucket)
    }

    /// What distinguishes the store from every other, whatever the prefix.
    pub(crate) fn identity(&self) -> String {
        format!("{} {:?} {:?}", self.bucket(), self.endpoint, self.account)
    }

    /// A client, with what the environment says. It connects to nothing yet.
    ///
    /// # Errors
    /// `InvalidArgument` when the environment or an option is wrong.
    pub(crate) fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        let client = match self.kind {
            "gs" => self.google(),
            "az" => self.azure(),
            _ => self.amazon(),
        };
        client.map_err(|error| {
            let what = format!("{} cannot be used: {error}", self.bucket());
            Error::new(ErrorKind::InvalidArgument, "use the object store", what).hint(CREDENTIALS)
        })
    }

    fn amazon(&self) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if self.allow_http {
            builder = builder.with_allow_http(true);
        }
        if self.has_test_keys {
            builder = builder.with_access_key_id("test").with_secret_access_key("test");
        }
        builder = builder.with_conditional_put(S3ConditionalPut::ETagMatch);
        Ok(Arc::new(builder.with_retry(once()).with_http_connector(Transport).build()?))
    }

    fn google(&self) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&self.bucket);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        if self.allow_http {
            let options = ClientOptions::default().with_config(ClientConfigKey::AllowHttp, "true");
            builder = builder.with_client_options(options);
        }
        Ok(Arc::new(builder.with_retry(once()).with_http_connector(Transport).build()?))
    }

    fn azure(&self) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(&self.bucket);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Some(account) = &self.account {
            builder = builder.with_account(account);
        }
        if self.allow_http {
            builder = builder.with_allow_http(true);
        }
        Ok(Arc::new(builder.with_retry(once()).with_http_connector(Transport).build()?))
    }
}

fn options(kind: &str) -> &'static [&'static str] {
    match kind {
        "gs" => &["endpoint", "allow_http"],
        "az" => &["account", "endpoint", "allow_http"],
        _ => &["endpoint", "region", "allow_http", "test_keys"],
    }
}

fn is_endpoint(text: &str) -> bool {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['@', '?', '#', ' ']))
}

/// The client sends every request once: whether it may be sent again is known only after the object was read again.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::ZERO, ..RetryConfig::default() }
}

pub(crate) const CREDENTIALS: &str = "credentials come from the environment: AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY";

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Result<Place> {
        Place::of(&url.parse().unwrap())
    }

    #[test]
    fn urls_name_a_bucket_and_a_prefix() {
        for (url, bucket, prefix) in [
            ("s3://exports", "s3://exports", ""),
            ("s3://exports/", "s3://exports", ""),
            ("gs://exports/a/b/", "gs://exports", "a/b"),
            ("az://exports/a?account=x", "az://exports", "a"),
            ("s3://exports/a?endpoint=http://h:1&region=r&allow_http=on", "s3://exports", "a"),
        ] {
            let place = place(url).unwrap();
            assert_eq!((place.bucket().as_str(), place.prefix().as_ref()), (bucket, prefix));
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for url in [
            "s3:exports",
            "s3://",
            "s3:///a",
            "s3://a b/c",
            "s3://exports/a//b",
            "s3://exports/../b",
            "s3://exports?reggion=r",
            "gs://exports?region=r",
            "s3://exports?allow_http=yes",
            "s3://exports?endpoint=host",
            "s3://key@exports/a",
        ] {
            assert_eq!(place(url).unwrap_err().kind(), ErrorKind::InvalidArgument, "{url}");
        }
    }

    #[test]
    fn secret_in_a_url_is_refused_and_not_shown() {
        for url in [
            "s3://key:hunter2@exports/a",
            "s3://exports?secret_access_key=hunter2",
            "s3://exports?aws_secret_access_key=hunter2",
            "s3://exports?endpoint=http://key:hunter2@h",
            "s3://exports?session_token=hunter2",
            "gs://exports?service_account_key=hunter2",
            "az://exports?account_key=hunter2",
            "az://exports?sas_token=hunter2",
            "az://exports?sig=hunter2",
        ] {
            let error = place(url).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
