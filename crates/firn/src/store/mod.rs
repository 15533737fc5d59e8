//! Where a file lives: names, open files.
