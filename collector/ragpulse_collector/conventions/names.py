"""The attribute names of the contract with the SDK, without the SDK: a collector does not pay for its machinery."""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragpulse.attributes import *  # noqa: F403 - the contract is the whole of that module


def _names() -> dict[str, Any]:
    package = find_spec("ragpulse")
    assert package is not None, "the SDK is part of the same distribution"
    assert package.origin is not None, "it is a package of files"
    spec = spec_from_file_location("ragpulse.attributes", Path(package.origin).with_name("attributes.py"))
    assert spec is not None, "the file is Python"
    assert spec.loader is not None, "the file is Python"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if name.isupper()}


globals().update(_names())
