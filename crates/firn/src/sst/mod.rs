//! Sorted string tables: blocks, filters, index, writer, reader.
