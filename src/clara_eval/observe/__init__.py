"""What an operator sees: logs, metrics, alerts."""

from __future__ import annotations

from clara_eval.observe.alerts import Alert, Alerts
from clara_eval.observe.logs import bound_challenge, configure_logs
from clara_eval.observe.metrics import Metrics

__all__ = ["Alert", "Alerts", "Metrics", "bound_challenge", "configure_logs"]
