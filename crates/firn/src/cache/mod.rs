//! Block cache: decoded blocks, sharded, scan-resistant.
