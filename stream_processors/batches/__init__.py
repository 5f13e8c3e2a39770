"""Batches: complete groups released together, in the order in which they became ready."""
