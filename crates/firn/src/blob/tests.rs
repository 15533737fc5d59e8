//! Tests of the whole module, and a model of its threads.

mod interleavings;
