"""The attribute names of the contract with the SDK.

`import ragpulse.attributes as names` would find the function `ragpulse.attributes`, which has the module's name.
"""

from ragpulse.attributes import *  # noqa: F403 - the contract is the whole of that module
