//! The request `ListMultipartUploads`.

use super::answer::text_of;
use super::{OpenSsl, S3Store, xml};
use crate::error::Result;
use crate::store::{Page, UploadId, UploadInfo};
use chrono::DateTime;
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpError, HttpRequestBody};

/// Between the two markers of a page's token; neither has it.
const SEPARATOR: char = '\n';

pub fn page(store: &S3Store, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
    let whole = format!("{}{prefix}", store.prefix);
    let mut url = format!("{}?uploads=&prefix={}", store.bucket_url, encoded(&whole));
    if let Some((key, id)) = token.and_then(|token| token.split_once(SEPARATOR)) {
        let (key, id) = (encoded(key), encoded(id));
        url += &format!("&key-marker={key}&upload-id-marker={id}");
    }
    let generic = |source| object_store::Error::Generic {
        store: "S3",
        source,
    };
    let failed = |error: HttpError| generic(Box::new(error));
    let body = store.run("list of uploads", 0, async {
        let credential = store.store.credentials().get_credential().await?;
        let request = http::Request::get(&url).body(HttpRequestBody::empty());
        let mut request = request.map_err(|error| generic(Box::new(error)))?;
        AwsAuthorizer::new(&credential, "s3", &store.region)
            .with_crypto(&OpenSsl)
            .try_authorize(&mut request, None)?;
        let answer = store.client.execute(request).await.map_err(failed)?;
        text_of(answer).await.map_err(failed)
    })?;
    Ok(parse(store, &body))
}

fn parse(store: &S3Store, body: &str) -> Page<UploadInfo> {
    let items = xml::elements(body, "Upload").filter_map(|upload| {
        let initiated = xml::text(upload, "Initiated")?;
        let initiated = DateTime::parse_from_rfc3339(&initiated).ok()?;
        Some(UploadInfo {
            name: store.name(&xml::text(upload, "Key")?)?,
            id: UploadId(xml::text(upload, "UploadId")?),
            started_s: initiated.timestamp().max(0) as u64,
        })
    });
    let more = xml::text(body, "IsTruncated").as_deref() == Some("true");
    let next = more.then(|| {
        let marker = |name| xml::text(body, name).unwrap_or_default();
        let id = marker("NextUploadIdMarker");
        format!("{}{SEPARATOR}{id}", marker("NextKeyMarker"))
    });
    Page {
        items: items.collect(),
        next,
    }
}

/// A value of a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}
