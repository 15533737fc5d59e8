//! Key shapes for jobs, before and after the catalog is loaded.

use crate::base::IndexId;
use crate::base::shape::{KeyShape, KeyShapes};
use crate::catalog::Catalog;
use std::sync::{Arc, OnceLock};

/// The key shapes of the catalog; none until it is loaded.
pub(super) struct LateShapes(pub(super) Arc<OnceLock<Arc<Catalog>>>);

impl KeyShapes for LateShapes {
    fn shape(&self, index: IndexId) -> Option<Arc<dyn KeyShape>> {
        self.0.get()?.shape(index)
    }
}
