//! A store in memory, with faults.

use super::Faults;
use crate::env::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::random::SplitMix64;
use crate::store::{
    ObjectInfo, ObjectStore, Page, PartTag, PutNew, UploadId, UploadInfo, check_len, check_name,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Objects and uploads of a page, few so that tests see several.
const PAGE: usize = 7;

/// Several clients may share it; each request is atomic.
pub struct MemObjects {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    random: SplitMix64,
    faults: Faults,
    /// No request is answered before this time.
    out_until_us: u64,
    objects: BTreeMap<String, StoredObject>,
    uploads: BTreeMap<(String, String), Upload>,
    uploads_begun: u64,
    /// Effects that come later.
    late: Vec<(u64, Effect)>,
    requests: u64,
    bytes_read: u64,
}

/// The history of a name: stale lists show how it was.
#[derive(Default)]
struct StoredObject {
    now: Option<(Bytes, u64)>,
    /// Size if there was an object, and since when, microseconds.
    past: Vec<(u64, Option<u64>)>,
}

struct Upload {
    started_s: u64,
    parts: BTreeMap<u32, Bytes>,
}

#[derive(Clone)]
enum Effect {
    Put(String, Bytes),
    PutNew(String, Bytes),
    Delete(String),
    BeginUpload(String, String),
    PutPart(String, String, u32, Bytes),
    Complete(String, String, Vec<PartTag>),
    Abort(String, String),
}

/// The answer to an effect.
enum Done {
    Ok,
    Exists,
    NoUpload,
    WrongParts,
}

impl MemObjects {
    /// An empty store that works without faults.
    pub fn new(seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            inner: Mutex::new(Inner {
                random: SplitMix64::new(seed),
                faults: Faults::default(),
                out_until_us: 0,
                objects: BTreeMap::new(),
                uploads: BTreeMap::new(),
                uploads_begun: 0,
                late: Vec::new(),
                requests: 0,
                bytes_read: 0,
            }),
        }
    }

    /// Changes what it does wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.lock().faults = faults;
    }

    /// Answers nothing for a while.
    pub fn go_out(&self, us: u64) {
        self.inner.lock().out_until_us = self.clock.now_us() + us;
    }

    /// Changes a bit of a stored object for good. Returns false if there is none to change.
    pub fn damage(&self, name: &str, at: usize) -> bool {
        let mut inner = self.inner.lock();
        let found = inner
            .objects
            .get_mut(name)
            .and_then(|stored| stored.now.as_mut());
        let Some((bytes, _)) = found.filter(|(bytes, _)| at < bytes.len()) else {
            return false;
        };
        *bytes = flipped(bytes, at as u64 * 8);
        true
    }

    /// All objects, without a request.
    pub fn contents(&self) -> BTreeMap<String, Bytes> {
        let inner = self.inner.lock();
        let each = inner.objects.iter();
        let each = each.filter_map(|(name, stored)| Some((name.clone(), stored.now.clone()?.0)));
        each.collect()
    }

    /// Uploads in parts that have not ended, without a request.
    pub fn uploads(&self) -> usize {
        self.inner.lock().uploads.len()
    }

    /// Requests and the bytes of their answers.
    pub fn traffic(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.requests, inner.bytes_read)
    }

    /// Delays, faults and counts of a request before its effect.
    fn arrive(&self, inner: &mut Inner) -> Result<()> {
        inner.requests += 1;
        let latency_us = match inner.faults.latency_us {
            0 => 0,
            most_us => inner.random.below(most_us),
        };
        self.clock.sleep_us(latency_us);
        inner.apply_late(self.clock.now_us(), self.clock.unix_s());
        if self.clock.now_us() < inner.out_until_us || inner.hits(|faults| faults.lost) {
            return Err(self.silence(inner));
        }
        if inner.hits(|faults| faults.throttled) {
            return Err(Error::new(ErrorKind::Throttled, "slow down"));
        }
        Ok(())
    }

    fn silence(&self, inner: &Inner) -> Error {
        self.clock.sleep_us(inner.faults.timeout_us);
        Error::new(ErrorKind::Unreachable, "no answer")
    }

    fn change(&self, effect: &Effect) -> Result<Done> {
        let mut inner = self.inner.lock();
        self.arrive(&mut inner)?;
        let sends = matches!(
            effect,
            Effect::Put(..) | Effect::PutNew(..) | Effect::PutPart(..)
        );
        if sends && inner.hits(|faults| faults.flip_sent) {
            let text = "the SHA-256 is not that of the bytes";
            return Err(Error::new(ErrorKind::Damaged, text));
        }
        let now_us = self.clock.now_us();
        if inner.hits(|faults| faults.late) {
            let within_us = inner.faults.late_us.max(1);
            let at_us = now_us + inner.random.below(within_us);
            inner.late.push((at_us, effect.clone()));
            return Err(self.silence(&inner));
        }
        let done = inner.apply(effect, now_us, self.clock.unix_s());
        if inner.hits(|faults| faults.double) {
            inner.apply(effect, now_us, self.clock.unix_s());
        }
        if inner.hits(|faults| faults.lost_answer) {
            return Err(self.silence(&inner));
        }
        Ok(done)
    }

    /// Reads after [`Self::arrive`]; the answer may be lost.
    fn read<T>(&self, read: impl FnOnce(&mut Inner) -> Result<T>) -> Result<T> {
        let mut inner = self.inner.lock();
        self.arrive(&mut inner)?;
        if inner.hits(|faults| faults.lost_answer) {
            return Err(self.silence(&inner));
        }
        read(&mut inner)
    }
}

impl Inner {
    /// Whether a fault happens now.
    fn hits(&mut self, per_mille: impl Fn(&Faults) -> u32) -> bool {
        self.random.per_mille(per_mille(&self.faults))
    }

    fn apply_late(&mut self, now_us: u64, unix_s: u64) {
        let (due, later) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(at_us, _)| *at_us <= now_us);
        self.late = later;
        for (_, effect) in due as Vec<(u64, Effect)> {
            self.apply(&effect, now_us, unix_s);
        }
    }

    fn store(&mut self, name: &str, bytes: Option<Bytes>, now_us: u64, unix_s: u64) {
        let stored = self.objects.entry(name.to_owned()).or_default();
        stored
            .past
            .push((now_us, bytes.as_ref().map(|bytes| bytes.len() as u64)));
        stored.now = bytes.map(|bytes| (bytes, unix_s));
    }

    fn get(&self, name: &str) -> Result<(Bytes, u64)> {
        let found = self.objects.get(name).and_then(|stored| stored.now.clone());
        found.ok_or_else(|| Error::new(ErrorKind::Absent, format!("{name}: no such object")))
    }

    fn apply(&mut self, effect: &Effect, now_us: u64, unix_s: u64) -> Done {
        match effect {
            Effect::Put(name, bytes) => self.store(name, Some(bytes.clone()), now_us, unix_s),
            Effect::PutNew(name, bytes) => {
                if self.get(name).is_ok() {
                    return Done::Exists;
                }
                self.store(name, Some(bytes.clone()), now_us, unix_s);
            }
            Effect::Delete(name) => self.store(name, None, now_us, unix_s),
            Effect::BeginUpload(name, id) => {
                let upload = Upload {
                    started_s: unix_s,
                    parts: BTreeMap::new(),
                };
                self.uploads.insert((name.clone(), id.clone()), upload);
            }
            Effect::PutPart(name, id, index, bytes) => {
                match self.uploads.get_mut(&(name.clone(), id.clone())) {
                    Some(upload) => upload.parts.insert(*index, bytes.clone()),
                    None => return Done::NoUpload,
                };
            }
            Effect::Complete(name, id, tags) => {
                let key = (name.clone(), id.clone());
                let Some(upload) = self.uploads.get(&key) else {
                    return Done::NoUpload;
                };
                let mut whole = Vec::new();
                for (index, tag) in tags.iter().enumerate() {
                    match upload.parts.get(&(index as u32)) {
                        Some(part) if tag_of(part) == *tag => whole.extend_from_slice(part),
                        _ => return Done::WrongParts,
                    }
                }
                self.uploads.remove(&key);
                self.store(name, Some(whole.into()), now_us, unix_s);
            }
            Effect::Abort(name, id) => {
                self.uploads.remove(&(name.clone(), id.clone()));
            }
        }
        Done::Ok
    }

    /// The bytes of an answer, perhaps with another bit.
    fn sent(&mut self, bytes: Bytes) -> Bytes {
        self.bytes_read += bytes.len() as u64;
        if bytes.is_empty() || !self.hits(|faults| faults.flip_read) {
            return bytes;
        }
        let bit = self.random.below(bytes.len() as u64 * 8);
        flipped(&bytes, bit)
    }
}

fn flipped(bytes: &[u8], bit: u64) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    bytes.into()
}

fn tag_of(part: &[u8]) -> PartTag {
    PartTag(format!("{:?}", openssl::sha::sha256(part)))
}

fn no_upload(name: &str) -> Error {
    Error::new(ErrorKind::Absent, format!("{name}: no such upload"))
}

impl ObjectStore for MemObjects {
    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        check_name(name)?;
        self.change(&Effect::Put(name.to_owned(), bytes))?;
        Ok(())
    }

    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew> {
        check_name(name)?;
        Ok(
            match self.change(&Effect::PutNew(name.to_owned(), bytes))? {
                Done::Exists => PutNew::Exists,
                _ => PutNew::Created,
            },
        )
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        check_name(name)?;
        self.read(|inner| {
            let (bytes, _) = inner.get(name)?;
            Ok(inner.sent(bytes))
        })
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        check_name(name)?;
        self.read(|inner| {
            let (bytes, _) = inner.get(name)?;
            let end = range.end.min(bytes.len() as u64);
            let part = bytes.slice(range.start.min(end) as usize..end as usize);
            check_len(name, &range, inner.sent(part))
        })
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        check_name(name)?;
        self.read(|inner| {
            let (bytes, modified_s) = inner.get(name)?;
            Ok(ObjectInfo {
                name: name.to_owned(),
                bytes: bytes.len() as u64,
                modified_s,
            })
        })
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        let now_us = self.clock.now_us();
        let now_s = self.clock.unix_s();
        self.read(|inner| {
            let mut as_of_us = u64::MAX;
            if inner.hits(|faults| faults.stale) {
                let most_us = inner.faults.stale_us.max(1);
                as_of_us = now_us.saturating_sub(inner.random.below(most_us));
            }
            let after = token.map_or(Bound::Unbounded, Bound::Excluded);
            let mut page = Page::default();
            for (name, stored) in inner.objects.range::<str, _>((after, Bound::Unbounded)) {
                let before = stored
                    .past
                    .iter()
                    .rev()
                    .find(|(at_us, _)| *at_us <= as_of_us);
                let Some(&(at_us, Some(bytes))) = before else {
                    continue;
                };
                if !name.starts_with(prefix) {
                    continue;
                }
                if page.items.len() == PAGE {
                    page.next = page.items.last().map(|last: &ObjectInfo| last.name.clone());
                    break;
                }
                page.items.push(ObjectInfo {
                    name: name.clone(),
                    bytes,
                    modified_s: now_s - now_us.saturating_sub(at_us) / 1_000_000,
                });
            }
            Ok(page)
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.change(&Effect::Delete(name.to_owned()))?;
        Ok(())
    }

    fn begin_upload(&self, name: &str) -> Result<UploadId> {
        check_name(name)?;
        let id = {
            let mut inner = self.inner.lock();
            inner.uploads_begun += 1;
            inner.uploads_begun.to_string()
        };
        self.change(&Effect::BeginUpload(name.to_owned(), id.clone()))?;
        Ok(UploadId(id))
    }

    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag> {
        let tag = tag_of(&bytes);
        let effect = Effect::PutPart(name.to_owned(), id.0.clone(), index, bytes);
        match self.change(&effect)? {
            Done::NoUpload => Err(no_upload(name)),
            _ => Ok(tag),
        }
    }

    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.hits(|faults| faults.lost_upload) {
            inner.uploads.remove(&(name.to_owned(), id.0.clone()));
        }
        drop(inner);
        let effect = Effect::Complete(name.to_owned(), id.0.clone(), parts.to_vec());
        match self.change(&effect)? {
            Done::NoUpload => Err(no_upload(name)),
            Done::WrongParts => {
                let text = format!("{name}: parts are missing or not those that were named");
                Err(Error::new(ErrorKind::Damaged, text))
            }
            _ => Ok(()),
        }
    }

    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()> {
        self.change(&Effect::Abort(name.to_owned(), id.0.clone()))?;
        Ok(())
    }

    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
        let from: usize = token.and_then(|token| token.parse().ok()).unwrap_or(0);
        self.read(|inner| {
            let all = inner
                .uploads
                .iter()
                .filter(|((name, _), _)| name.starts_with(prefix));
            let items = all
                .skip(from)
                .take(PAGE)
                .map(|((name, id), upload)| UploadInfo {
                    name: name.clone(),
                    id: UploadId(id.clone()),
                    started_s: upload.started_s,
                });
            let items: Vec<UploadInfo> = items.collect();
            let next = (items.len() == PAGE).then(|| (from + PAGE).to_string());
            Ok(Page { items, next })
        })
    }
}
