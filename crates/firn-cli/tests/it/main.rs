#![allow(clippy::disallowed_methods)] // Damage is done behind the back of the environment.
//! The command line against real directories: sound, in use, damaged in two hundred ways.

mod backup;
mod blobs;
mod bucket;
mod commands;
mod corruption;
mod formats;
mod support;
