"""Where torch's traces differ from what eager does, and what differs between torch's versions."""
