//! The prefix extractors that flushes and compactions use, before and after the catalog is loaded.

use crate::base::IndexId;
use crate::base::prefix_extractor::{PrefixExtractor, PrefixExtractors};
use crate::catalog::Catalog;
use std::sync::{Arc, OnceLock};

/// Returns the prefix extractors of the catalog; `None` for every index until the catalog is
/// loaded.
pub(super) struct LatePrefixExtractors(pub(super) Arc<OnceLock<Arc<Catalog>>>);

impl PrefixExtractors for LatePrefixExtractors {
    fn prefix_extractor(&self, index: IndexId) -> Option<Arc<dyn PrefixExtractor>> {
        self.0.get()?.prefix_extractor(index)
    }
}
