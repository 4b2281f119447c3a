"""Where a client's warnings go."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import LogCapture

from replication.client.consumer.hooks import warn


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_a_warning_leaves_standard_output_to_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn("interceptor_failed", method="close")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "interceptor_failed" in printed.err
    assert "close" in printed.err


def test_a_warning_goes_where_the_program_has_configured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    captured = LogCapture()
    structlog.configure(processors=[captured])
    warn("interceptor_failed", method="close")
    assert captured.entries == [
        {"event": "interceptor_failed", "method": "close", "log_level": "warning"}
    ]
    assert capsys.readouterr() == ("", "")
