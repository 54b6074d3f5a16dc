"""What the stored rows mean: cases for evaluators, and numbers with their intervals.

    rows ─ cases ─▶ Case (worker, replay)
    rows ─ units ─▶ value and inclusion probability per unit ─ estimate ─▶ points, headline, comparison, gate

Every public function takes a store and parameters and answers plain JSON-able data; the pages, the API, the command
line, Prometheus and the monitors call the same ones.
"""
