"""How finished spans leave the process: encoded, queued, sent, and kept while the collector is away."""
