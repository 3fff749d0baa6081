"""The long-running service: the tick and its duties, the queue, health, metrics, alerts and logs."""
