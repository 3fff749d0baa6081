"""Logs without secrets, alerts that arrive once, signed, and again when refused."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars
from tests.support.receiver import Receiver

from clara_eval.service.logs import configure_logs
from clara_eval.service.metrics import Alert, Alerts, Metrics, Webhook, signature

KEY = "0x" + "4c" * 32


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    configure_logs(secrets=[KEY, "hunter22"], stream=stream)
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen() -> Iterator[io.StringIO]:
    root, stream = logging.getLogger(), Terminal()
    handlers, level = root.handlers, root.level
    configure_logs(secrets=[KEY], stream=stream)
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_a_person_at_a_terminal_reads_lines(screen: io.StringIO) -> None:
    """The time of day, words, addresses in their short form; no secret, and no ids that only programs use."""
    with bound_contextvars(challenge="0x" + "ab" * 20):
        structlog.get_logger().info("evaluation_queued", workflow="evaluate:1:2", about="0x" + "ab" * 20, detail=KEY)
    line = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert re.match(r"\d\d:\d\d:\d\d \[info +\] Evaluation queued", line)
    assert ("0xabab…abab" in line, KEY in line, "workflow" in line, "about" in line) == (True, False, False, False)


def test_quiet_looks_at_the_chain_do_not_fill_a_terminal(screen: io.StringIO) -> None:
    """A tick that brought nothing is told once; one with problems always, and programs are told every one."""
    log = structlog.get_logger()
    for problems in (0, 0, 2, 0):
        log.info("tick_ended", problems=problems)
    assert screen.getvalue().count("Tick ended") == 2


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_secret_never_reaches_the_log(lines: io.StringIO) -> None:
    """Known secrets, telling names and URLs with keys are hidden in every position of an event."""
    log = structlog.get_logger()
    log.info("signed", detail=f"with {KEY}", password="x", nested={"api_key": "y", "list": [f"<{KEY}>"]})
    log.warning("node_down", node="https://user:pw@rpc.example.com/v2/abcdef?key=1", why=ValueError(f"bad {KEY}"))
    logging.getLogger("library").error("login hunter22 at %s, Bearer abc.def", "https://h.example/secret-path")
    text = lines.getvalue()
    for secret in (KEY, "hunter22", "abcdef", "user:pw", "secret-path", "abc.def"):
        assert secret not in text
    assert "rpc.example.com" in text


def test_a_traceback_is_redacted_too(lines: io.StringIO) -> None:
    """An exception's message and frames go through the same door."""
    try:
        int(f"key was {KEY}")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert KEY not in lines.getvalue()
    assert "ValueError" in lines.getvalue()


def test_the_challenge_is_bound(lines: io.StringIO) -> None:
    """Inside the context every event names the challenge, afterwards none does."""
    with bound_contextvars(challenge="0xabc"):
        structlog.get_logger().info("inside")
    structlog.get_logger().info("outside")
    inside, outside = read(lines)
    assert (inside["challenge"], inside["event"], inside["level"]) == ("0xabc", "inside", "info")
    assert "challenge" not in outside


async def test_an_alert_arrives_signed(receiver: Receiver) -> None:
    """The receiver can check body and time with the shared secret, using nothing but HMAC-SHA256."""
    alerts = Alerts(Metrics(), Webhook(receiver.url, "s3cret"))
    assert alerts.raise_alert(Alert("DeadlineAtRisk", "critical", "half gone", "0xabc"))
    await asyncio.wait_for(receiver.arrived.wait(), 5)
    headers, body = receiver.got[0]
    expected = hmac.new(b"s3cret", headers["x-clara-timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["x-clara-signature"] == f"v1={expected}"
    assert json.loads(body)["challenge"] == "0xabc"
    assert signature("other", 1, body) != headers["x-clara-signature"]
    await alerts.close()


async def test_a_refused_alert_is_sent_again(receiver: Receiver) -> None:
    """Two refusals and then success: three requests, no failure counted."""
    receiver.refuse, metrics = 2, Metrics()
    alerts = Alerts(metrics, Webhook(receiver.url, None, pauses=(0.01, 0.01)))
    alerts.raise_alert(Alert("EvaluationFailed", "critical", "x"))
    await asyncio.wait_for(receiver.arrived.wait(), 5)
    assert len(receiver.got) == 3
    assert b"clara_webhook_failures_total 0.0" in metrics.render()
    await alerts.close()


async def test_a_dead_receiver_is_counted_and_stops_nobody() -> None:
    """Raising returns at once; after the last attempt the failure is a metric."""
    metrics = Metrics()
    alerts = Alerts(metrics, Webhook("http://127.0.0.1:9/", None, pauses=(0.01,)))
    alerts.raise_alert(Alert("EvaluationFailed", "critical", "x"))
    await alerts.close()
    assert b"clara_webhook_failures_total 1.0" in metrics.render()


async def test_the_same_alert_is_not_repeated_within_its_hour() -> None:
    """Once an hour for one challenge; another challenge is another alert."""
    now = [0.0]
    alerts = Alerts(Metrics(), clock=lambda: now[0])
    first = Alert("DeadlineAtRisk", "warning", "x", "0xa")
    assert alerts.raise_alert(first)
    assert not alerts.raise_alert(first)
    assert alerts.raise_alert(Alert("DeadlineAtRisk", "warning", "x", "0xb"))
    now[0] = 3601
    assert alerts.raise_alert(first)
