"""Reads an ATen graph of torch.fx into plain data."""
