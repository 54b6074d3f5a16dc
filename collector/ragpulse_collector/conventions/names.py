"""The attribute names of the contract with the SDK (there, `ragpulse.attributes` is a function as well as a module)."""

from ragpulse.attributes import *  # noqa: F403 - the contract is the whole of that module
