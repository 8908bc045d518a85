//! The page, read as markup.
