"""The attribute names under their public address: `from ragpulse.attributes import SPAN_KIND`.

`ragpulse.attributes(...)` is a function, and shares the name: users write both. So the SDK itself reads `_names`. A
module that is imported after the package would get the function from `from ragpulse import attributes`.
"""

from ragpulse._names import *  # noqa: F403 - every name of it
