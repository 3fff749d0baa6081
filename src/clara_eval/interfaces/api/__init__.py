"""The REST door and the status page."""
