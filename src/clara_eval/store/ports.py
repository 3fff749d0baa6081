"""The parts of the store by name, for signatures that need one of them."""

from clara_eval.store.answers import RunAnswers
from clara_eval.store.entries import RunEntries
from clara_eval.store.public_keys import PublicKeys
from clara_eval.store.sql_store import SqlStore as Store

__all__ = ["KeyedDocuments", "PublicKeys", "RunAnswers", "RunEntries", "Store"]

KeyedDocuments = PublicKeys
