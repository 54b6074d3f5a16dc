"""What the operations do, one module for each noun of the API."""
