mod decode;
mod kit;
mod versions;
