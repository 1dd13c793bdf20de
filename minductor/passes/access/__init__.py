"""The stage `access`: says how every load and store moves."""
