"""The outside: each module fulfils a Protocol that a room declares."""
