"""pytest plugin: assert on a distribution of evaluation results; imports nothing until used."""
