"""The application: its help, its version, and how commands are found."""

from __future__ import annotations

from pathlib import Path

import pytest

import poisonproof
from poisonproof.cli._app import COMMANDS, explain, load_command
from tests.cli.conftest import Cli


def test_the_version_is_the_package_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"poisonproof {poisonproof.__version__}\n", "")


def test_without_arguments_the_commands_are_listed(cli: Cli) -> None:
    shown = cli("--help").out
    positions = [shown.index(f" {name} ") for name in ("demo", "train", "predict", "certify")]
    assert positions == sorted(positions)
    bare = cli()
    assert "demo" in bare.out
    assert "Error" not in bare.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(cli: Cli, name: str) -> None:
    result = cli(name, "--help")
    assert result.code == 0
    assert f"poisonproof {name}" in result.out.partition("Example")[2]
    assert max(len(line) for line in result.out.splitlines()) <= 80


def test_every_example_begins_a_line_so_that_it_can_be_copied(cli: Cli) -> None:
    examples = cli("train", "--help").out.partition("Examples:")[2].splitlines()
    begun = [line for line in examples if "poisonproof train" in line]
    assert len(begun) == 4
    assert all(line.split()[1:3] == ["poisonproof", "train"] for line in begun)


def test_a_flag_is_not_shown_with_a_value(cli: Cli) -> None:
    (line,) = [line for line in cli("schema", "--help").out.splitlines() if "--freeze" in line][:1]
    assert "bool" not in line


def test_rare_options_of_train_stand_in_groups_of_their_own(cli: Cli) -> None:
    main, _, networks = cli("train", "--help").out.partition("Networks ")
    assert "--schema" in main
    assert "--epochs" not in main
    assert "--epochs" in networks


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says_first(name: str) -> None:
    assert load_command(name).help.partition("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def test_every_command_is_a_file_of_its_name() -> None:
    files = Path(poisonproof.__file__).with_name("cli").glob("[a-z]*.py")
    assert {path.stem for path in files} == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "No such command 'nope'"),
        (["train", "--nope"], "No such option: --nope"),
        (["train"], "Missing"),
        (["train", "f.csv", "-k", "many", "--out", "m"], "Invalid value for '--partitions'"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_help(
    cli: Cli, arguments: list[str], words: str
) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert words in result.err
    assert "--help" in result.err
    assert result.err.count("\n") == 1


def test_a_bug_is_one_line_too_and_has_another_exit_code() -> None:
    line, code = explain(KeyError("two\nlines"))
    assert code == 1
    assert "\n" not in line
    assert "POISONPROOF_TRACEBACK" in line


def test_an_interruption_is_no_error_message() -> None:
    assert explain(KeyboardInterrupt()) == ("Interrupted.", 130)


def test_too_little_memory_names_the_partition() -> None:
    error = MemoryError("Unable to allocate 9 GiB")
    error.add_note("while training the member of partition 7")
    message, code = explain(error)
    assert message.endswith("Unable to allocate 9 GiB while training the member of partition 7")
    assert code != 0
