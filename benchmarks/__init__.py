"""What the performance goals are measured with: ratios within one run. Nothing here is a test."""
