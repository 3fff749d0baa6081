"""Settings and networks of the operator, and the eval config of a poster."""
