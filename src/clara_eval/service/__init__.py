"""The service that runs for months: one file for each duty, the loop, the queue, health, alerts."""
