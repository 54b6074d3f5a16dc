"""What the package promises to users is what it exports."""

import importlib
import pkgutil

import ragpulse_evaluators


def test_every_exported_name_exists_and_is_sorted_once() -> None:
    """`__all__` of the package and of each public module names what is there."""
    for info in pkgutil.walk_packages(ragpulse_evaluators.__path__, "ragpulse_evaluators."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        names = list(getattr(module, "__all__", ()))
        assert len(names) == len(set(names)), info.name
        assert not [name for name in names if not hasattr(module, name)], info.name


def test_the_names_of_the_interface_are_importable() -> None:
    """Everything the documentation imports from the package."""
    promised = """Case Context EvaluationResult Evaluator JudgeCall ScriptedJudge align calibrate evaluate
    evaluate_queries evaluate_response evaluate_sync evaluator get_evaluator list_evaluators meta_evaluate summarize
    statistics"""
    missing = [name for name in promised.split() if not hasattr(ragpulse_evaluators, name)]
    assert missing == []
