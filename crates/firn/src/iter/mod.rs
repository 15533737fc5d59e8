//! Iterators over several sources: concatenation, merge, visibility.
