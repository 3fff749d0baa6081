"""The public documents: every shape that is stored, served or printed, once."""
