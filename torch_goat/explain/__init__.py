"""Why a network says what it says of a node."""
