"""Workloads and harness of `minductor bench`, and the demo. Takes, gives and refuses nothing itself."""
