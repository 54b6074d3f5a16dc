"""Runs decorated functions: wrappers, generators and streams, of which each step is recorded and passed on."""
