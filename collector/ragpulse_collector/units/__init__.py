"""A unit is a request that is sampled and evaluated: its case, and the keys of its scores.

Which spans are units, and what a trace shows of its unit, is derived in SQL: `store/units/`.
"""
