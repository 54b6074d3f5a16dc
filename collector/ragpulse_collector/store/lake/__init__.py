"""The scale-out store: DuckLake with its catalog in PostgreSQL and Parquet files on S3 or in a folder."""
