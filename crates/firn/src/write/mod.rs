//! Write batches, commit pipeline, stall control.
