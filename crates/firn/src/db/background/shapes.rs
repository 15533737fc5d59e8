//! What jobs know of keys before and after the catalog is read.

use crate::base::IndexId;
use crate::base::shape::{KeyShape, KeyShapes};
use crate::catalog::Catalog;
use std::sync::{Arc, OnceLock};

/// The shapes of the catalog, once there is one.
pub(super) struct LateShapes(pub(super) Arc<OnceLock<Arc<Catalog>>>);

impl KeyShapes for LateShapes {
    fn shape(&self, index: IndexId) -> Option<Arc<dyn KeyShape>> {
        self.0.get()?.shape(index)
    }
}
