"""Explanations, reports and the command line."""
