"""Exported programs (torch.export) as ATen graphs."""
