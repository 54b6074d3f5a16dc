"""Why a metric moved: the parts of a change between two times, and documents by the quality of their answers."""
