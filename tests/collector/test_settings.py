"""ragpulse.toml is read once and refused with the place and the fix."""

from pathlib import Path

import pytest

from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import Settings, SettingsError

GOOD = """
[collector]
port = 5000
[judge]
model = "openai/gpt-5-mini"
[prices."my-model"]
input = 1.0
output = 2.0
[[evaluator]]
name = "tone"
use = "guideline"
guidelines = "Polite."
[[rule]]
name = "live"
evaluators = ["faithfulness", "tone"]
rate = 0.05
where = "service = 'helpdesk'"
strata = [{ where = "error", rate = 1.0 }]
"""


def write(folder: Path, text: str) -> Path:
    """Write a configuration file."""
    path = folder / "ragpulse.toml"
    path.write_text(text)
    return path


def test_every_section_of_a_good_file_is_read(tmp_path: Path) -> None:
    """A complete file arrives typed, parameters of configured evaluators included."""
    settings = load_settings(write(tmp_path, GOOD))
    assert settings.collector.port == 5000
    assert settings.evaluator[0].params == {"guidelines": "Polite."}
    assert settings.rule[0].strata[0].rate == 1.0
    assert settings.prices["my-model"].output == 2.0


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[collector]\nport = 1\nretenton_days = 3\n", 3, "did you mean 'retention_days'"),
        ("[colector]\nport = 1\n", 1, "did you mean 'collector'"),
        ("[collector]\nport = 'x'\n", 2, "collector.port"),
        ("[[rule]]\nname='a'\nevaluators=['x']\nrate=0.1\n[[rule]]\nname='b'\nevaluators=['x']\nrate=7\n", 8, "rate"),
        ("[[rule]]\nname='a'\nevaluators=['x']\nrat=0.1\n", 4, "did you mean 'rate'"),
        ("\n[[rule]]\nname='a'\nevaluators=['x']\nrate=0.1\njudge='m'\n", 2, "add an [[evaluator]] with"),
        ("[[rule]]\nname='a'\nevaluators='x'\nrate=0.1\n", 3, "should be a list (got 'x')"),
        ("[[rule]]\nname='a'\nevaluators=['x']\nrate=1\nstrata=[{where='error', rat=1}]\n", 5, "mean 'rate'"),
        ("[prices.a]\ninput=1\noutput=1\n[prices.'b.c']\ninput=1\noutptu=1\n", 6, "did you mean 'output'"),
        ("[prices]\n'a' = {input=1, output=-1}\n", 2, "prices.a.output"),
        ("[collector]\napi_keys=[{name='a', scopes=['reed'], sha256='x'}]\n", 2, "'ingest', 'read' or 'admin'"),
        ("[collector]\npublic_url='x'\n", 2, "public_url: write the whole address"),
        ("[collector]\nredact=['a', '(']\n", 2, "pattern 2 is no regular expression"),
        ("[drift]\nevery='x'\n", 2, "write how often"),
    ],
)
def test_mistakes_are_named_with_line_and_nearest_name(tmp_path: Path, text: str, line: int, message: str) -> None:
    """A wrong key or value is refused naming file, line and what was probably meant."""
    path = write(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        load_settings(path)
    assert f"{path}:{line}:" in str(raised.value)
    assert message in str(raised.value)


def test_broken_toml_and_missing_file_are_settings_errors(tmp_path: Path) -> None:
    """Syntax errors and absent files say which file it was."""
    with pytest.raises(SettingsError, match=r"ragpulse\.toml"):
        load_settings(write(tmp_path, "[collector\n"))
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "absent.toml")


def test_a_file_of_another_encoding_is_a_settings_error(tmp_path: Path) -> None:
    """It is named, like every other file that cannot be read."""
    path = tmp_path / "latin.toml"
    path.write_bytes(b"# \xe9\n")
    with pytest.raises(SettingsError, match=r"latin\.toml"):
        load_settings(path)


def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """The start names the file, which OpenSSL would not."""
    key = tmp_path / "key.pem"
    key.touch()
    options = {"tls_certificate": str(tmp_path / "absent.pem"), "tls_key": str(key)}
    with pytest.raises(SettingsError, match=r"absent\.pem"):
        Settings().with_options("collector", options).check()


def test_equal_rule_names_are_refused(tmp_path: Path) -> None:
    """Two rules of one name cannot be told apart in the decision log."""
    rule = "[[rule]]\nname='a'\nevaluators=['x']\nrate=0.1\n"
    with pytest.raises(SettingsError, match="used twice"):
        load_settings(write(tmp_path, rule + rule))


def test_a_public_address_needs_a_key() -> None:
    """Listening beyond loopback without a key is refused with the fix."""
    settings = Settings().with_options("collector", {"host": "0.0.0.0"})
    with pytest.raises(SettingsError, match="ragpulse key"):
        settings.check()


def test_command_line_options_win() -> None:
    """Options that were given replace the file's; the others stay."""
    settings = Settings().with_options("collector", {"port": 9, "db": None})
    assert (settings.collector.port, settings.collector.db) == (9, "ragpulse.duckdb")
