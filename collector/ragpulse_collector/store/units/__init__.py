"""Which spans are units, and what a trace shows of them: while it is undecided, and once it is decided.

spans of a trace ─ undecided.py or decided.py: its unit, in `place` ─▶ row.py ─▶ a row of `traces`
"""
