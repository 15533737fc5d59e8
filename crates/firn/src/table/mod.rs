//! Rows and cursors: what a statement does to one table.
