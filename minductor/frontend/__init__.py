"""Wing A: from an ATen graph of torch.fx to a Program."""
