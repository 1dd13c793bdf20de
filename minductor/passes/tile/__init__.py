"""The stage `tile`: chooses the loop nest of every kernel."""
