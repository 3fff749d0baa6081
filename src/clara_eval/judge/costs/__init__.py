"""Prices, quotes, spending caps and budgets of model calls."""
