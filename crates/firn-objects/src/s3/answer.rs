//! Answers of a store, and what their failures mean.
//!
//! `object_store` has no kinds for most failures. So the client below it turns each answer that is
//! no success into a [`FailedAnswer`], which [`to_error`] finds again among the sources of its
//! error.

use super::{SILENCE, xml};
use crate::error::{Error, ErrorKind};
use async_trait::async_trait;
use http::{Method, StatusCode};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService, ReqwestConnector,
};
use std::error::Error as StdError;
use std::fmt;

/// An answer that is no success. The rest of the answer is not kept: it may have the key's id.
#[derive(Debug)]
pub struct FailedAnswer {
    status: StatusCode,
    code: String,
    message: String,
}

impl fmt::Display for FailedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store answers {}", self.status)?;
        if !self.code.is_empty() {
            write!(f, ", {}: {}", self.code, self.message)?;
        }
        Ok(())
    }
}

impl StdError for FailedAnswer {}

impl FailedAnswer {
    fn new(status: StatusCode, body: &str) -> Self {
        Self {
            status,
            code: xml::text(body, "Code").unwrap_or_default(),
            message: xml::text(body, "Message").unwrap_or_default(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self.code.as_str() {
            "NoSuchBucket" | "PermanentRedirect" => return ErrorKind::Invalid,
            "NoSuchUpload" => return ErrorKind::Absent,
            "BadDigest"
            | "InvalidDigest"
            | "XAmzContentSHA256Mismatch"
            | "IncompleteBody"
            | "XAmzContentChecksumMismatch" => return ErrorKind::Damaged,
            // Two conditional requests at once: the next try finds the object.
            "OperationAborted" | "ConditionalRequestConflict" => return ErrorKind::Throttled,
            "SlowDown" | "RequestLimitExceeded" | "TooManyRequests" => return ErrorKind::Throttled,
            "RequestTimeout" => return ErrorKind::Unreachable,
            "ExpiredToken" | "InvalidToken" | "QuotaExceeded" => return ErrorKind::Refused,
            code if code.starts_with("Throttling") => return ErrorKind::Throttled,
            _ => {}
        }
        match self.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::Absent,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Refused,
            StatusCode::INSUFFICIENT_STORAGE => ErrorKind::Refused,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT => ErrorKind::Throttled,
            StatusCode::REQUEST_TIMEOUT => ErrorKind::Unreachable,
            // The object ends before the range.
            StatusCode::RANGE_NOT_SATISFIABLE => ErrorKind::Damaged,
            status if status.is_server_error() => ErrorKind::Unreachable,
            // An answer that began as a success and became a failure.
            status if status.is_success() => ErrorKind::Unreachable,
            _ => ErrorKind::Invalid,
        }
    }
}

/// Makes clients that fail with [`FailedAnswer`].
#[derive(Debug)]
pub struct ClassifyingConnector;

/// The timer of reqwest's read time-out runs while the request is sent, too. So a request with a
/// body needs a client without it, and so does a completion, over which S3 may take its time.
#[derive(Debug)]
struct ClassifyingService {
    asking: HttpClient,
    sending: HttpClient,
}

impl HttpConnector for ClassifyingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let connector = ReqwestConnector::default();
        let silence = options.clone().with_read_timeout(SILENCE);
        Ok(HttpClient::new(ClassifyingService {
            asking: connector.connect(&silence)?,
            sending: connector.connect(options)?,
        }))
    }
}

#[async_trait]
impl HttpService for ClassifyingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_post = request.method() == Method::POST;
        let answer = if is_post || request.body().content_length() > 0 {
            self.sending.execute(request).await?
        } else {
            self.asking.execute(request).await?
        };
        let status = answer.status();
        if status.is_success() && !is_post {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = body.bytes().await;
        if status.is_success() {
            // A completion takes long: S3 sends 200 at once, and perhaps an error later.
            let body = body?;
            let text = String::from_utf8_lossy(&body);
            if xml::elements(&text, "Error").next().is_none() {
                return Ok(HttpResponse::from_parts(head, body.into()));
            }
            return Err(failed(status, &text));
        }
        let body = body.unwrap_or_default();
        Err(failed(status, &String::from_utf8_lossy(&body)))
    }
}

fn failed(status: StatusCode, body: &str) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, FailedAnswer::new(status, body))
}

/// The body of an answer.
pub async fn text_of(answer: HttpResponse) -> Result<String, HttpError> {
    let body = answer.into_body().bytes().await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Credentials could not be had.
#[derive(Debug)]
pub struct NoCredentials(pub String);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NoCredentials {}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        at = error.source();
    }
    None
}

/// Whether a conditional put has found the name taken.
pub fn is_taken(error: &object_store::Error) -> bool {
    let found: Option<&FailedAnswer> = find(error);
    // Some stores, such as R2, answer 304 for 412.
    let taken = [StatusCode::PRECONDITION_FAILED, StatusCode::NOT_MODIFIED];
    found.is_some_and(|answer| taken.contains(&answer.status))
}

/// The error of a request for `name`.
pub fn to_error(name: &str, error: object_store::Error) -> Error {
    if let Some(none) = find::<NoCredentials>(&error) {
        return Error::new(ErrorKind::Refused, format!("{name}: {none}"));
    }
    if let Some(answer) = find::<FailedAnswer>(&error) {
        return Error::new(answer.kind(), format!("{name}: {answer}"));
    }
    if let Some(failed) = find::<HttpError>(&error) {
        // The errors of clients tell the cause in their sources only.
        let mut text = format!("{name}: the store is not reached");
        let mut at = failed.source();
        while let Some(cause) = at {
            text += &format!(": {cause}");
            at = cause.source();
        }
        return Error::new(ErrorKind::Unreachable, text);
    }
    let kind = match &error {
        object_store::Error::NotFound { .. } => ErrorKind::Absent,
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            ErrorKind::Invalid
        }
        // An answer that cannot be read, as that of something else than a store.
        _ => ErrorKind::Unreachable,
    };
    Error::new(kind, format!("{name}: {error}"))
}
