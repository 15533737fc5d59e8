"""Differential testing: the same random statements on InnoDB and on the engine under test.

`strings` and `columns` make types and values, `tables` definitions, `changes` and `queries`
statements, `program` a whole run of them; `pair` executes a statement on both engines and compares
what a client sees; `shrink` cuts a failing run down.
"""
