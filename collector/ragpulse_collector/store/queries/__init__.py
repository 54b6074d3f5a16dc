"""Named relations and writes: each question about the stored data is defined here once.

    traces         conditions on traces, decided traces, rows and scores of lists, the newest
    trace_answers  one trace with all its parts
    trace_lists    outcomes and facets of lists, sessions
    documents      what cases are built of, documents of a request, texts of a unit without its own
    decisions      traces that are due for a decision, the latest decisions, forced ones, stored rules
    deciding       the decision itself
    scores         units (one score and one inclusion probability each), verdicts, labels
    jobs, runs     pending jobs, money, recorded replies; replays
    datasets, monitors, health

A relation is SQL text to be put in parentheses after FROM, or a function that returns it. Its docstring describes one
row. Relations over a time range read the parameters `$first` (included) and `$last` (excluded).
"""
