"""Named relations and writes: what a question about the stored data means is defined here once.

    filters     conditions over the columns of `traces`
    traces      decided traces, trace rows with their scores, the newest traces, the spans and texts of a trace
    documents   what retrievers returned: contexts of a trace, documents of a request
    decisions   the sampler's latest decisions
    one_trace   everything known of one trace; trace_list: scores, outcomes and facets of lists, sessions
    health      totals, what waits, recent failures, for `GET status`
    scores      units (one score and one inclusion probability each), verdicts, labels
    jobs, runs  pending jobs, replays

A relation is SQL text to be put in parentheses after FROM, or a function that returns it. Its docstring says what one
row is. Relations over a time range read the parameters `$first` (included) and `$last` (excluded).
"""
