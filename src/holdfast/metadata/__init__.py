"""What the cluster agreed on: metadata records, the immutable cluster image, the store protocol."""
