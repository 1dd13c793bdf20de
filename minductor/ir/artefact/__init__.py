"""What is written from a plan: the generated texts, the torch.fx graph as data, and the manifest of a package."""
