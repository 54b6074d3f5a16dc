"""Users' SQL: what it may be (`guard`, `where`), how much it may use (`limits`), and the process that runs it.

sql ─ guard ─▶ process (parent's side) ─ pipe ─▶ child: one reader process that may be killed
"""
