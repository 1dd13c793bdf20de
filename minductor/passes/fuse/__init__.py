"""The stage `fuse`: joins kernels."""
