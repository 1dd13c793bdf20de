"""What a kernel costs on a target."""
