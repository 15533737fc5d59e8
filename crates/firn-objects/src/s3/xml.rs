//! The few elements of S3's answers that `object_store` does not read.

/// The contents of all elements of the name, in order. They have no attributes in these answers.
pub fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let start = rest.find(&open)? + open.len();
        let end = start + rest[start..].find(&close)?;
        let content = &rest[start..end];
        rest = &rest[end + close.len()..];
        Some(content)
    })
}

/// The text of the first element of the name.
pub fn text(xml: &str, name: &str) -> Option<String> {
    let escaped = elements(xml, name).next()?;
    let plain = escaped.replace("&lt;", "<").replace("&gt;", ">");
    let plain = plain.replace("&quot;", "\"").replace("&apos;", "'");
    Some(plain.replace("&#34;", "\"").replace("&amp;", "&"))
}
