"""What other frameworks do that changes a recording: their own trees of runs, their usage, their exceptions."""
