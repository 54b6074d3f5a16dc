"""What the stored rows mean: numbers with their intervals. This package only reads.

    rows ─ units ─▶ value and inclusion probability per unit ─ quality ─▶ series, overview, comparison, gate

Each public function takes a store and parameters and returns plain JSON data. The pages, the API, the command line,
Prometheus and the monitors call the same functions.
"""
