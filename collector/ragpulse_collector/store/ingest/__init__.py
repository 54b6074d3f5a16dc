"""How received spans become rows: a bounded queue, one writer, one transaction for many bodies.

body ─ queue ─▶ decode (own thread) ─▶ batches: once each, texts, costs ─▶ append (Arrow) ─▶ COMMIT
"""
