"""Whether an op is right: agreement with its reference, its gradients, and what torch expects of an op."""
