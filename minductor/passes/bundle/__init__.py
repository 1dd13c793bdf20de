"""The stage `bundle`: puts equal kernels of different tensors into one launch."""
