mod entries;
mod image;
mod kit;
mod order;
mod parts;
mod table;
mod text;
