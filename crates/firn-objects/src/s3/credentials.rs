//! Where credentials come from: the environment, then the file that AWS's tools share, then what
//! `object_store` knows (a web identity, a container's role, the instance's role by IMDSv2).
//!
//! Nothing here writes credentials to a text: not to an error, not to `Debug`.

use super::answer::NoCredentials;
use crate::error::{Error, ErrorKind, Result};
use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long credentials of the file are used before it is read again: somebody renews them.
const REREAD: Duration = Duration::from_secs(60);

/// The variables of the process, or those of a test.
#[derive(Clone, Default)]
pub struct Environment(HashMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.0.keys().collect();
        names.sort_unstable();
        f.debug_tuple("Environment").field(&names).finish()
    }
}

impl Environment {
    /// The variables of the process that may matter here.
    pub fn of_process() -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let value = value.into_string().ok()?;
            (name.starts_with("AWS_") || name == "HOME").then_some((name, value))
        });
        Self(named.collect())
    }

    /// These variables.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = variables
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Self(owned.collect())
    }

    /// The first variable that is set and not empty.
    pub(super) fn first(&self, names: &[&str]) -> Option<String> {
        let mut values = names.iter().filter_map(|&name| self.0.get(name));
        values.find(|value| !value.is_empty()).cloned()
    }
}

/// Gives the builder its credentials.
pub fn add(builder: AmazonS3Builder, environment: &Environment) -> Result<AmazonS3Builder> {
    let key_id = environment.first(&["AWS_ACCESS_KEY_ID"]);
    let secret = environment.first(&["AWS_SECRET_ACCESS_KEY"]);
    match (key_id, secret) {
        (Some(key_id), Some(secret)) => {
            let builder = builder
                .with_access_key_id(key_id)
                .with_secret_access_key(secret);
            let token = environment.first(&["AWS_SESSION_TOKEN"]);
            return Ok(match token {
                Some(token) => builder.with_token(token),
                None => builder,
            });
        }
        (None, None) => {}
        (Some(_), None) => return Err(half("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => return Err(half("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")),
    }
    if let Some(file) = SharedFile::find(environment) {
        // Errors show up now, not at the first request.
        file.read()?;
        return Ok(builder.with_credentials(Arc::new(file)));
    }
    let builder = [
        (
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            AmazonS3ConfigKey::WebIdentityTokenFile,
        ),
        ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
        ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
        ("AWS_ENDPOINT_URL_STS", AmazonS3ConfigKey::StsEndpoint),
        (
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        ),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            AmazonS3ConfigKey::ContainerCredentialsFullUri,
        ),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            AmazonS3ConfigKey::ContainerAuthorizationTokenFile,
        ),
        (
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            AmazonS3ConfigKey::MetadataEndpoint,
        ),
    ]
    .into_iter()
    .fold(builder, |builder, (name, key)| {
        match environment.first(&[name]) {
            Some(value) => builder.with_config(key, value),
            None => builder,
        }
    });
    let built = builder.clone().build();
    let built = built.map_err(|error| super::to_error("credentials", error))?;
    let role = Role(built.credentials().clone());
    Ok(builder.with_credentials(Arc::new(role)))
}

fn half(set: &str, missing: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!("{set} is set, but {missing} is not"),
    )
}

/// Credentials of a role. That they cannot be had is not the failure of the store.
#[derive(Debug)]
struct Role(AwsCredentialProvider);

#[async_trait]
impl CredentialProvider for Role {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.0.get_credential().await.map_err(|error| {
            let error = super::to_error("role", error);
            no_credentials(format!(
                "no credentials: neither the environment nor a credentials file has them, and \
                 those of a role cannot be had ({error})"
            ))
        })
    }
}

fn no_credentials(text: String) -> object_store::Error {
    object_store::Error::Generic {
        store: "S3",
        source: Box::new(NoCredentials(text)),
    }
}

/// `~/.aws/credentials`, or the file that the environment names.
struct SharedFile {
    path: PathBuf,
    profile: String,
    latest: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SharedFile {
    /// The file that is named, or the usual one if it exists.
    #[allow(clippy::disallowed_methods)] // Credentials are no data of the database.
    fn find(environment: &Environment) -> Option<Self> {
        let named = environment.first(&["AWS_SHARED_CREDENTIALS_FILE"]);
        let profile = environment.first(&["AWS_PROFILE"]);
        let path = match named {
            Some(named) => PathBuf::from(named),
            None => {
                let home = PathBuf::from(environment.first(&["HOME"])?);
                let usual = home.join(".aws/credentials");
                if profile.is_none() && !usual.exists() {
                    return None;
                }
                usual
            }
        };
        Some(Self {
            path,
            profile: profile.unwrap_or_else(|| "default".to_owned()),
            latest: Mutex::default(),
        })
    }

    #[allow(clippy::disallowed_methods)] // See `find`.
    fn read(&self) -> Result<Arc<AwsCredential>> {
        let mut latest = self.latest.lock();
        if let Some((at, credential)) = &*latest
            && at.elapsed() < REREAD
        {
            return Ok(credential.clone());
        }
        let found = match (self.read_now(), &*latest) {
            (Ok(found), _) => Arc::new(found),
            // Somebody writes the file right now. If the old ones are invalid, the store says so.
            (Err(_), Some((_, credential))) => credential.clone(),
            (Err(error), None) => return Err(error),
        };
        *latest = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    #[allow(clippy::disallowed_methods)] // See `find`.
    fn read_now(&self) -> Result<AwsCredential> {
        let refused = |text: String| {
            Error::new(
                ErrorKind::Refused,
                format!("{}: {text}", self.path.display()),
            )
        };
        let text = std::fs::read_to_string(&self.path);
        let text = text.map_err(|error| refused(error.to_string()))?;
        let profile = &self.profile;
        parse_profile(&text, profile).ok_or_else(|| {
            refused(format!(
                "the profile {profile:?} has no aws_access_key_id and aws_secret_access_key"
            ))
        })
    }
}

#[async_trait]
impl CredentialProvider for SharedFile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.read()
            .map_err(|error| no_credentials(error.to_string()))
    }
}

/// The credentials of a profile: `[name]`, then lines `key = value`.
fn parse_profile(text: &str, profile: &str) -> Option<AwsCredential> {
    let mut is_ours = false;
    let mut values = HashMap::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            is_ours = name.trim() == profile;
        } else if is_ours && let Some((key, value)) = line.split_once('=') {
            values.insert(key.trim(), value.trim());
        }
    }
    let owned = |key| values.get(key).map(|&value| value.to_owned());
    Some(AwsCredential {
        key_id: owned("aws_access_key_id")?,
        secret_key: owned("aws_secret_access_key")?,
        token: owned("aws_session_token"),
    })
}

#[cfg(test)]
mod tests;
