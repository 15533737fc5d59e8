//! Order-preserving encoding of SQL key parts; collation weights arrive as bytes.
