"""What happens to torch's graphs before they are captured: decompositions, the joint graph and its partition."""
