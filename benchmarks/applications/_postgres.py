"""Runs an example beside a PostgreSQL with pgvector, both of which the package `pgserver` brings."""

import os
import runpy
import sys
import tempfile

import pgserver

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, pgserver.get_server(folder) as server:
        os.environ["DATABASE_URL"] = server.get_uri()
        runpy.run_path(sys.argv[1], run_name="__main__")
