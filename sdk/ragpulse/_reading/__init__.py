"""Reads the values of an application: the text, calls of tools, contexts and usage in whatever a function returned."""
