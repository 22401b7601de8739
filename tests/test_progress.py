"""A progress bar is for terminals."""

from __future__ import annotations

import pytest

from poisonproof.progress import RichProgress, Silent, reporting


def test_nothing_is_written_where_standard_error_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    for _ in range(2):
        bar = RichProgress()
        bar.start(3, "Training")
        bar.advance()
        bar.advance(2)
        bar.stop()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_the_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar = RichProgress()
    bar.start(3, "Training")
    bar.advance(3)
    bar.stop()
    assert "Training" in capsys.readouterr().err


def test_a_task_that_fails_is_ended_too() -> None:
    told: list[str] = []

    class Listener(Silent):
        def stop(self) -> None:
            told.append("ended")

    with pytest.raises(OSError, match="gone"), reporting(Listener(), 3, "Training"):
        raise OSError("gone")
    assert told == ["ended"]
