"""What the trainer says, repeated on the logs by which groups and batches are decided."""
