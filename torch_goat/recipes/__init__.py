"""The paper's experiments as files."""
