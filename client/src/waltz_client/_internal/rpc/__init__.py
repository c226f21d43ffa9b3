"""Requests with one answer each: transaction data, high-water marks, administration."""
