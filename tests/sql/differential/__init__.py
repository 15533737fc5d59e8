"""Differential testing: the same random statements on InnoDB and on the engine under test.

`strings` and `columns` generate types and values, `tables` definitions, `changes` and `queries`
statements, and `program` a whole run of them. `pair` executes a statement on both engines and
compares the results that a client sees. `shrink` reduces a failing run.
"""
